"""Name the weights of artifacts: by content hash, followed by a type if the weights are to be converted.

A lower-precision kernel thus gets its weights in that precision without embedding them: core converts each once for
all kernels that want it, when the first is loaded, and never during a run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir

Array = np.ndarray[Any, Any]

CONVERTIBLE: Mapping[str, onnx_ir.DataType] = MappingProxyType(
    {dtype.name: dtype for dtype in (onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16)}
)
"""Types that float32 weights may be converted to, by their ONNX names."""


def converted(content: str, dtype: onnx_ir.DataType) -> str:
    """Return the key by which an `Artifact` requests a float32 weight in another dtype.

    Args:
        content: Content hash of the weight.
        dtype: One of `CONVERTIBLE`.

    Raises:
        ValueError: If `dtype` is not in `CONVERTIBLE`.

    Examples:
        >>> converted("3f2a", onnx_ir.DataType.FLOAT16)
        '3f2a:FLOAT16'
    """
    if dtype.name not in CONVERTIBLE:
        raise ValueError(f"weights are converted to {' or '.join(CONVERTIBLE)}, not to {dtype.name}")
    return f"{content}:{dtype.name}"


def weight_named(key: str) -> tuple[str, onnx_ir.DataType | None]:
    """Parse the key of a weight in an `Artifact` into its content hash and requested dtype.

    The dtype is None if the weight is requested unconverted.

    Raises:
        ValueError: If the requested dtype is not one that weights are converted to.
    """
    content, colon, name = key.partition(":")
    if colon and name not in CONVERTIBLE:
        raise ValueError(f"weights are converted to {' or '.join(CONVERTIBLE)}, not to {name[:40]!r}")
    return content, CONVERTIBLE[name] if colon else None


class Weights(Mapping[str, Array]):
    """Weights by the keys that artifacts use; converted weights are shared by all their concurrent users.

    Args:
        held: Unconverted weights by content hash.
        made: Cache of converted weights; if None, a weight is cached only while it is in use.
    """

    def __init__(self, held: Mapping[str, Array], made: MutableMapping[str, Array] | None = None) -> None:
        self._held = held
        self._made = weakref.WeakValueDictionary() if made is None else made

    def __getitem__(self, key: str) -> Array:
        content, dtype = weight_named(key)
        if dtype is None:
            return self._held[content]
        array = self._made.get(key)
        if array is None:
            with np.errstate(over="ignore"):  # whoever lowers has looked whether there is something to overflow
                array = np.ascontiguousarray(self._held[content].astype(dtype.numpy()))
            array.flags.writeable = False
            self._made[key] = array
        return array

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and weight_named(key)[0] in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
