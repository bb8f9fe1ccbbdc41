"""Specifications of values, known before anything runs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from typing import Any, cast

import ml_dtypes  # noqa: F401  registers bfloat16 and float8 with NumPy
import numpy as np
import onnx_ir


class ValueKind(enum.Enum):
    """How the runtime stores a value."""

    PLANNED = "planned"
    """Static shape: a fixed location in the arena."""
    SIZED = "sized"
    """Shape follows from the sizes of the model's inputs, so it is known before a run: then as a planned value."""
    BOUNDED = "bounded"
    """Shape known only after the producing kernel ran, but at most `bound`: storage for the bound is reserved."""
    FOREIGN = "foreign"
    """Anything else (unknown shape, string, sequence, optional): an object passed by reference."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Specification of a value, known before running.

    Attributes:
        name: Value name, unique in its graph.
        kind: How it is stored.
        dtype: Element type; None for sequences and other non-tensors.
        shape: Static shape if planned; None where an extent is unknown (sized, bounded, foreign); `()` is a scalar.
        bound: For a sized or bounded value, the largest extent of each axis.
        typical: For a sized value, its shape where the sizes of the model's inputs are typical.
        type_name: For a non-tensor, its ONNX type, such as `seq(tensor(float))`; empty for tensors.
    """

    name: str
    kind: ValueKind = ValueKind.PLANNED
    dtype: onnx_ir.DataType | None
    shape: tuple[int | None, ...] | None
    bound: tuple[int, ...] | None = None
    typical: tuple[int, ...] | None = None
    type_name: str = ""

    def __post_init__(self) -> None:
        if self.kind is ValueKind.PLANNED and (self.dtype is None or self.shape is None or None in self.shape):
            raise ValueError(f"planned value {self.name!r} needs a dtype and a static shape")
        if self.kind in (ValueKind.SIZED, ValueKind.BOUNDED) and (self.dtype is None or self.bound is None):
            raise ValueError(f"{self.kind.value} value {self.name!r} needs a dtype and a bound")
        if (self.kind is ValueKind.SIZED) != (self.typical is not None):
            raise ValueError(f"value {self.name!r}: a sized value has a typical shape, and no other has one")

    @property
    def has_known_shape(self) -> bool:
        """Whether its shape is known before a run."""
        return self.kind in (ValueKind.PLANNED, ValueKind.SIZED)

    def as_planned(self, shape: tuple[int, ...]) -> TensorSpec:
        """Return the spec of the value in a run in which it has this shape."""
        return TensorSpec(name=self.name, dtype=self.dtype, shape=shape)

    def as_foreign(self) -> TensorSpec:
        """Return the spec of the value in a run in which it is passed by reference, whatever its shape is."""
        return TensorSpec(name=self.name, kind=ValueKind.FOREIGN, dtype=self.dtype, shape=self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """Shape of a planned value, typical shape of a sized one, bound of a bounded one.

        Raises:
            ValueError: If the value is foreign.
        """
        if self.kind is ValueKind.PLANNED:
            return cast("tuple[int, ...]", self.shape)
        if self.typical is not None:
            return self.typical
        if self.kind is ValueKind.BOUNDED and self.bound is not None:
            return self.bound
        raise ValueError(f"foreign value {self.name!r} has no static shape")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements (`ml_dtypes` for bfloat16 and float8).

        Raises:
            ValueError: If the value is not a tensor.
        """
        if self.dtype is None:
            raise ValueError(f"{self.name!r} is not a tensor")
        return _numpy_dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of its `static_shape`."""
        return math.prod(self.static_shape) * self.numpy_dtype.itemsize


@functools.cache
def _numpy_dtype(dtype: onnx_ir.DataType) -> np.dtype[Any]:
    return np.dtype(dtype.numpy())  # a look-up and a conversion; binding a run asks for hundreds


def name_of_type(kind: onnx_ir.TypeProtocol | None) -> str:
    """Return a type in ONNX notation; empty if there is none.

    Examples:
        >>> name_of_type(onnx_ir.SequenceType(onnx_ir.TensorType(onnx_ir.DataType.FLOAT)))
        'seq(tensor(float))'
    """
    if isinstance(kind, onnx_ir.SequenceType):
        return f"seq({name_of_type(kind.elem_type)})"
    if isinstance(kind, onnx_ir.OptionalType):
        return f"optional({name_of_type(kind.elem_type)})"
    if kind is None:
        return ""
    return f"{'sparse_' * isinstance(kind, onnx_ir.SparseTensorType)}tensor({kind.dtype.name.lower()})"
