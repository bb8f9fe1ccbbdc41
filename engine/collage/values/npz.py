"""Represent values as plain arrays, as NPZ files store them.

A tensor is one array under its name. Strings are arrays of text. Types that NumPy lacks (bfloat16, 8-bit floats,
4-bit integers) are stored as float32 or int8, which represent all their values. The members of a sequence `s` are
`s[0]`, `s[1]` and so on; an empty sequence is an empty array, `s[]`. An absent optional value is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 and float8 with NumPy
import numpy as np
import onnx_ir

from collage_core.errors import FeedError


def to_arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Convert values to plain arrays.

    Raises:
        FeedError: If one is not a model value.

    Examples:
        >>> sorted(to_arrays({"s": [np.ones(1), np.zeros(2)], "none": [], "absent": None, "x": np.ones(3)}))
        ['none[]', 's[0]', 's[1]', 'x']
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, list | tuple):
            arrays[name] = _plain(name, value)
        elif value:
            arrays |= {f"{name}[{index}]": _plain(name, member) for index, member in enumerate(value)}
        else:
            arrays[f"{name}[]"] = np.zeros(0, np.float32)
    return arrays


def from_arrays(arrays: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Convert plain arrays to values; the inverse of `to_arrays`.

    Args:
        arrays: Plain arrays; other values (lists of arrays, None) are kept as they are.
        types: Type of each value as ONNX names it, such as `tensor(float)` or `seq(tensor(int64))`.

    Returns:
        Values by name. Arrays that belong to none of `types`, or come after a gap in a sequence, are included under
        their own names; missing tensors and sequences are not included.

    Examples:
        >>> from_arrays({"s[0]": np.ones(1), "s[1]": np.ones(1), "q": 3}, {"s": "seq(tensor(float))"})
        {'q': 3, 's': [array([1.]), array([1.])]}
    """
    values = dict(arrays)
    for name, written in types.items():
        kind = written.removeprefix("optional(")
        dtype = element_type(kind)
        if name in arrays:
            values[name] = _restored(arrays[name], dtype)
        elif kind.startswith("seq(") and (f"{name}[]" in arrays or f"{name}[0]" in arrays):
            keys = itertools.takewhile(arrays.__contains__, (f"{name}[{index}]" for index in itertools.count()))
            values[name] = [_restored(values.pop(key), dtype) for key in keys]
            values.pop(f"{name}[]", None)
        elif kind != written:
            values[name] = None
    return values


def how_to_give(name: str, kind: str) -> str:
    """Describe how a file provides an input that is not a tensor.

    Examples:
        >>> how_to_give("s", "optional(tensor(float))")
        "leave 's' out of the file for none"
    """
    inner = kind.removeprefix("optional(")
    ways = []
    if inner.startswith("seq("):
        ways.append(f"give an array per member, named '{name}[0]', '{name}[1]' and so on, or '{name}[]' for no members")
    if inner != kind:
        ways.append(f"leave {name!r} out of the file for none")
    return "; ".join(ways)


def element_type(kind: str) -> np.dtype[Any] | None:
    """Return NumPy's type of the elements of a tensor or sequence type; None if there is none.

    Examples:
        >>> element_type("seq(tensor(float))"), element_type("map(int64,float)")
        (dtype('float32'), None)
    """
    name = kind.removeprefix("seq(").removeprefix("tensor(").rstrip(")").upper()
    try:
        return np.dtype(onnx_ir.DataType[name].numpy())
    except (KeyError, TypeError):
        return None


def _restored(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Convert an array, or each array of a list, back to an extension dtype."""
    if isinstance(value, list | tuple):
        return [_restored(member, dtype) for member in value]
    if dtype is None or not _is_foreign(dtype) or not isinstance(value, np.ndarray) or value.dtype == dtype:
        return value
    if value.dtype.kind == "V" and value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)  # what NumPy makes of it in a file
    return value.astype(dtype) if np.can_cast(value.dtype, _wide(dtype)) else value


def _plain(name: str, value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray | np.generic):
        raise FeedError(name, f"it is a {type(value).__name__}, which an NPZ file cannot hold")
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype(_wide(array.dtype)) if _is_foreign(array.dtype) else array


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is an extension dtype, of which a file records only the size."""
    return dtype.isbuiltin == 2


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a built-in NumPy dtype that holds all values of an extension dtype."""
    if "int" not in dtype.name:
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if dtype.name.startswith("u") else np.int8)
