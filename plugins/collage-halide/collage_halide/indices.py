"""Where along an axis an element is: integer expressions that know which loops they depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

from collage_halide import hl


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An index along one axis.

    Attributes:
        expression: Halide's expression, of 32 bits.
        key: Text that is equal for equal indices.
        loops: Names of the loops it depends on.
        loop: Name of the loop whose variable it is; empty if it is not one.
        low: It is at least this.
        high: It is at most this.
        loaded: Whether it depends on what is in memory, so that vectors are gathered.
    """

    expression: Any
    key: str
    loops: frozenset[str]
    loop: str
    low: int
    high: int
    loaded: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high and not self.loops

    def __add__(self, other: Index | int) -> Index:
        other = fixed(other) if isinstance(other, int) else other
        if other.is_fixed and other.low == 0:
            return self
        if self.is_fixed and self.low == 0:
            return other
        if self.is_fixed and other.is_fixed:
            return fixed(self.low + other.low)
        return self._with(other, "+", self.expression + other.expression, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1 if isinstance(other, Index) else self + -other

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return fixed(0)
        if self.is_fixed:
            return fixed(self.low * factor)
        ends = sorted((self.low * factor, self.high * factor))
        return self._with(fixed(factor), "*", self.expression * factor, *ends)

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        low, high = self.low // divisor, self.high // divisor
        if low == high:
            return fixed(low)
        return self._with(fixed(divisor), "//", self.expression // divisor, low, high)

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return fixed(0)
        if self.low >= 0 and self.high < divisor:
            return self
        if self.is_fixed:
            return fixed(self.low % divisor)
        return self._with(fixed(divisor), "%", self.expression % divisor, 0, divisor - 1)

    def clamped(self, low: int, high: int) -> Index:
        """Return the nearest index in a range; the inner part of a loop is not clamped."""
        if self.low >= low and self.high <= high:
            return self
        if self.high <= low or self.low >= high:
            return fixed(low if self.high <= low else high)
        expression = hl.clamp(hl.likely(self.expression), low, high)
        key = f"clamp({self.key},{low},{high})"
        return Index(expression, key, self.loops, "", max(self.low, low), min(self.high, high), self.loaded)

    def inside(self, low: int, high: int) -> Any:
        """Return the condition that it is in a range; None if it always is."""
        above = self.expression >= low if self.low < low else None
        below = self.expression <= high if self.high > high else None
        if above is None or below is None:
            return below if above is None else above
        return above & below

    def _with(self, other: Index, sign: str, expression: Any, low: int, high: int) -> Index:
        key, loaded = f"({self.key}{sign}{other.key})", self.loaded or other.loaded
        return Index(expression, key, self.loops | other.loops, "", low, high, loaded)


def fixed(value: int) -> Index:
    """Return a number as an index."""
    return Index(hl.i32(value), str(value), frozenset(), "", value, value)


def loop(variable: Any, name: str, extent: int) -> Index:
    """Return the index of a loop that starts at 0."""
    return fixed(0) if extent == 1 else Index(variable, name, frozenset({name}), name, 0, extent - 1)


def computed(expression: Any, key: str, loops: frozenset[str], extent: int, *, promised: bool = False) -> Index:
    """Return an index that depends on data, clamped to an axis.

    What is promised to be inside is not clamped: Halide has to know the bounds, and a clamp of what is clamped already
    costs two operations for every element of every channel.

    Args:
        expression: The expression, an integer of any width.
        key: Text that is equal for equal indices.
        loops: Loops it depends on.
        extent: Extent of the axis.
        promised: Whether it is inside anyway.
    """
    narrow = hl.cast(hl.Int(32), expression)
    held = hl.unsafe_promise_clamped(narrow, 0, extent - 1) if promised else hl.clamp(narrow, 0, extent - 1)
    return Index(held, f"[{key}]", loops, "", 0, extent - 1, loaded=True)
