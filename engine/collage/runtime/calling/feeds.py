"""Check a caller's inputs and say where they are read."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from collage.values.foreign_values import expected_foreign, fitted_foreign
from collage.values.plain_numbers import may_become
from collage_core.contract import Buffer, TensorSpec, ValueKind
from collage_core.errors import FeedError

Array = np.ndarray[Any, Any]

READ_IN_PLACE_BYTES: Final = 256 << 10
"""Least size of an input that is read where it is, if a recent run read it there too; smaller ones are copied."""
READ_AT_ONCE_BYTES: Final = 16 << 20
"""Least size of an input that is read where it is when it is there for the first time.

Binding a run to another address takes longer than a copy of 1 MiB, and on a busy machine than one of 4 MiB. It pays if
the address is used again, as by callers that fill one array over and over, or beside a copy that takes milliseconds.
"""
_RECENT_RUNS: Final = 4


class Input:
    """One input of a session, with its cheap-to-compare properties precomputed: every run checks its inputs.

    Args:
        buffer: Where the input is copied to unless it is read in place.
        in_place: Whether kernels can be bound to a caller's arrays.

    Attributes:
        spec: The input's specification.
        is_referred_to: Whether its value is passed by reference.
    """

    __slots__ = (
        "_array",
        "_at_once",
        "_buffer",
        "_dtype",
        "_fixed",
        "_in_place",
        "_rank",
        "_recent",
        "_set",
        "_shape",
        "is_referred_to",
        "spec",
    )

    def __init__(self, buffer: Buffer, *, in_place: bool) -> None:
        self.spec = buffer.spec
        planned = buffer.spec.kind is ValueKind.PLANNED
        shape = buffer.spec.shape
        self._buffer = buffer
        self._set: Any = None
        self.is_referred_to = buffer.spec.kind is ValueKind.FOREIGN
        self._array = buffer.array if planned else None
        numeric = shape is not None and buffer.spec.dtype not in (None, ir.DataType.STRING)
        self._dtype = buffer.spec.numpy_dtype if numeric and (planned or self.is_referred_to) else None
        self._shape = shape
        self._rank = len(shape or ())
        self._fixed = [(axis, extent) for axis, extent in enumerate(shape or ()) if extent is not None]
        self._in_place = in_place and planned and buffer.spec.nbytes >= READ_IN_PLACE_BYTES
        self._at_once = self._in_place and buffer.spec.nbytes >= READ_AT_ONCE_BYTES
        self._recent: deque[int] = deque(maxlen=_RECENT_RUNS)

    @property
    def is_in_place(self) -> bool:
        """Whether it may be read where the caller has it."""
        return self._in_place

    def checked(self, value: Any) -> Any:
        """Check a value and return it in the form that the other methods take."""
        plain = self._dtype is not None and type(value) is np.ndarray and value.dtype == self._dtype
        if plain and (value.shape == self._shape if self._array is not None else self._is_readable(value)):
            return value
        return _fitted(value, self.spec)

    def _is_readable(self, value: Array) -> bool:
        """Return whether an array of the input's dtype can be read where it is, whatever sizes vary."""
        flags, shape = value.flags, value.shape
        return (
            len(shape) == self._rank
            and flags.c_contiguous
            and flags.aligned
            and all(shape[axis] == extent for axis, extent in self._fixed)
        )

    def address(self, value: Any) -> int:
        """Return the address at which a checked value is to be read in the next run; 0 if it is to be copied."""
        if not self._in_place:
            return 0
        flags = value.flags
        if not (flags.c_contiguous and flags.aligned):
            return 0
        address = int(value.ctypes.data)
        again = self._at_once or address in self._recent
        self._recent.append(address)
        return address if again else 0

    def copy_always(self) -> None:
        """Stop reading the input in place."""
        self._in_place = False

    def put(self, value: Any) -> None:
        """Copy a checked value into the input's buffer, which all runs of a session share."""
        if self._array is not None:
            np.copyto(self._array, value)
        elif self.is_referred_to:
            self._set = value.copy() if isinstance(value, np.ndarray) else value
            self._buffer.put(self._set)
        else:
            self._buffer.put(value)

    def refer(self, value: Any) -> None:
        """Have the next run read a checked value: where it is, if its size was not known before; else as `put`."""
        if self.is_referred_to:
            self._buffer.put(value)
        else:
            self.put(value)

    def forget(self) -> None:
        """Let go of a value that was referred to; what was put before is there again."""
        self._buffer.put(self._set)


def _fitted(value: Any, spec: TensorSpec) -> Any:
    """Convert a value to an array of the input's dtype and shape; sequences and optional values likewise."""
    if spec.dtype is None:
        return fitted_foreign(value, spec)
    array = _as_array(value, spec)
    fits = array.dtype == spec.numpy_dtype or (spec.dtype == ir.DataType.STRING and array.dtype.kind in "OUS")
    if fits and spec.shape is not None:
        fits = array.ndim == len(spec.shape) and all(
            extent in (None, given) for extent, given in zip(spec.shape, array.shape, strict=True)
        )
    if not fits:
        raise FeedError(spec.name, f"expected {expected(spec)}, got {array.dtype}{list(array.shape)}")
    if spec.kind is not ValueKind.FOREIGN:
        return array
    if spec.dtype == ir.DataType.STRING:
        return np.array(array, object)
    return np.require(array, requirements=("C", "A"))  # kernels read it at its address


def _as_array(value: Any, spec: TensorSpec) -> Array:
    try:
        if isinstance(value, np.ndarray):
            return value
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.from_dlpack(value)
        array = np.asarray(value)
        typed = hasattr(value, "dtype")  # a NumPy scalar, or another library's array
        if typed or spec.dtype == ir.DataType.STRING or not may_become(spec.numpy_dtype, array.dtype):
            return array
        return np.asarray(value, spec.numpy_dtype)
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        kind = type(value).__name__
        raise FeedError(spec.name, f"expected {expected(spec)}, and {kind} cannot be read as one: {error}") from error


def expected(spec: TensorSpec) -> str:
    """Describe the values an input accepts, for error messages."""
    if spec.dtype is None:
        return expected_foreign(spec)
    dtype = "strings" if spec.dtype == ir.DataType.STRING else str(spec.numpy_dtype)
    if spec.shape is None:
        return f"{dtype} of any shape"
    return f"{dtype}[{', '.join('?' if extent is None else str(extent) for extent in spec.shape)}]"
