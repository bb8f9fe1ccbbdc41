"""Arrays of other libraries in the CPU's memory, as NumPy arrays over the same memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collage_core.contract import Buffer
from collage_core.errors import FeedError

_DLPACK_CPU = 1  # kDLCPU in dlpack.h


def on_host(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a caller binds with every array in the CPU's memory as one of NumPy, over the same memory.

    Args:
        given: Arrays, and what else can be bound, which is returned as it is, by name of an input or output.

    Raises:
        FeedError: If NumPy has no such array: one of bfloat16, for example.
    """
    return {name: _as_array(name, each) for name, each in given.items()}


def _as_array(name: str, given: Any) -> Any:
    if given is None or isinstance(given, np.ndarray | str | Buffer) or not hasattr(given, "__dlpack_device__"):
        return given
    if given.__dlpack_device__()[0] != _DLPACK_CPU:
        return given
    kind = type(given).__name__
    try:
        array = np.from_dlpack(given)
        if array.flags.writeable:
            return array
        # DLPack before version 1 does not say whether an array may be written; the library's own view does
        own = np.asarray(given)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise FeedError(name, f"this {kind} cannot be bound, since NumPy cannot read it: {error}") from error
    return own if own.ctypes.data == array.ctypes.data else array
