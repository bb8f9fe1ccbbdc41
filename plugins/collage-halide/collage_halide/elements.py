"""Element types: how they are stored, and in which type they are computed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import onnx_ir

from collage_halide import hl
from collage_halide.errors import Refused

INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4
"""Halide's codes of kinds of types (`halide_type_code_t` in `HalideRuntime.h`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class ElementType:
    """A type of elements.

    Attributes:
        name: Its short name.
        code: Halide's code of its kind.
        bits: Its size in Halide; a Boolean has 1, and a byte in memory.
    """

    name: str
    code: int
    bits: int

    @property
    def is_float(self) -> bool:
        """Whether it is of floating point, of any width."""
        return self.code in (FLOAT, BFLOAT)

    @property
    def is_unsigned(self) -> bool:
        """Whether it has no negative numbers."""
        return self.code == UINT

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return max(1, self.bits // 8)

    @property
    def wide(self) -> ElementType:
        """The type that is computed in: float32 for 16-bit floats, else itself."""
        return F32 if self.is_float and self.bits < 32 else self

    @property
    def halide(self) -> Any:
        """Halide's type."""
        kinds = {INT: hl.Int, UINT: hl.UInt, FLOAT: hl.Float, BFLOAT: hl.BFloat}
        return kinds[self.code](self.bits)

    def constant(self, value: Any) -> Any:
        """Return a number as an expression of this type."""
        if self.name == "i1":
            return hl.cast(hl.Bool(), hl.u8(int(bool(value))))
        if self.is_float:
            wide = hl.f64(float(value)) if self.bits == 64 else hl.f32(float(value))
            return wide if self.bits >= 32 else hl.cast(self.halide, wide)
        return getattr(hl, self.name)(int(value))

    def cast(self, expression: Any) -> Any:
        """Convert an expression to this type."""
        if self.code == BFLOAT and expression.type().bits() == 32:
            # Halide rounds the bits of NaN as those of a number, which they may become
            expression = hl.select(hl.is_nan(expression), hl.f32(math.nan), expression)
        return hl.cast(self.halide, expression)

    @property
    def least(self) -> float | int:
        """The number that is no larger than any."""
        if self.is_float:
            return float("-inf")
        return 0 if self.is_unsigned else -(1 << (self.bits - 1))

    @property
    def most(self) -> float | int:
        """The number that is no smaller than any."""
        if self.is_float:
            return float("inf")
        return (1 << self.bits) - 1 if self.is_unsigned else (1 << (self.bits - 1)) - 1


F32 = ElementType("f32", FLOAT, 32)
F64 = ElementType("f64", FLOAT, 64)
I32 = ElementType("i32", INT, 32)
I64 = ElementType("i64", INT, 64)
BOOL = ElementType("i1", UINT, 1)

_D = onnx_ir.DataType
ELEMENT_TYPES: Mapping[onnx_ir.DataType, ElementType] = MappingProxyType(
    {
        _D.FLOAT: F32,
        _D.DOUBLE: F64,
        _D.FLOAT16: ElementType("f16", FLOAT, 16),
        _D.BFLOAT16: ElementType("bf16", BFLOAT, 16),
        _D.INT64: I64,
        _D.INT32: I32,
        _D.INT16: ElementType("i16", INT, 16),
        _D.INT8: ElementType("i8", INT, 8),
        _D.UINT64: ElementType("u64", UINT, 64),
        _D.UINT32: ElementType("u32", UINT, 32),
        _D.UINT16: ElementType("u16", UINT, 16),
        _D.UINT8: ElementType("u8", UINT, 8),
        _D.BOOL: BOOL,
    }
)
"""Supported element types, by ONNX's."""

NAMES = tuple(each.name for each in ELEMENT_TYPES.values())
FLOATS = frozenset({"f32", "f64", "f16", "bf16"})
SIGNED = frozenset({"i64", "i32", "i16", "i8"})
INTEGERS = SIGNED | {"u64", "u32", "u16", "u8"}
NUMBERS = FLOATS | INTEGERS
EVERY = NUMBERS | {"i1"}


def element_type(value: onnx_ir.Value) -> ElementType:
    """Return the element type of a value.

    Raises:
        Refused: If kernels do not support it.
    """
    found = ELEMENT_TYPES.get(value.dtype) if value.dtype is not None else None
    if found is None:
        held = "no tensor" if value.dtype is None else value.dtype.name.lower()
        raise Refused(f"{value.name!r} holds {held}; kernels hold {', '.join(NAMES)}")
    return found
