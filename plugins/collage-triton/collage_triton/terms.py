"""Scalar expressions over loop variables: one element of a result, as a graph with shared subexpressions.

Terms are interned: equal terms are one object, so `is` compares them, a value that two readers need at one
index is computed once, and diamond-shaped graphs stay small. Index terms are simplified by their upper
bounds when they are made; this is what makes two operators that read the same row share its loads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence

DTYPES = ("f32", "f16", "bf16", "i64", "i32", "i8", "u8", "i1")
"""Element types of terms; indices are i32."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A loop variable.

    Attributes:
        name: Its name in the source.
        axis: Axis of a two-dimensional tile along which it runs; None for one number per program.
        extent: Exclusive upper bound; it starts at 0.
    """

    name: str
    axis: int | None
    extent: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One operation on scalars.

    Attributes:
        op: Operation: `"add"`, `"load"`, `"var"`, `"const"`, `"reduce"`, `"dot"`, ...
        operands: Terms it reads.
        dtype: Type of its result.
        data: Other parameters: a constant's value, a parameter's name, loop variables.
        free: Loop variables it depends on.
        below: Exclusive upper bound of an index term; None if unknown.
        origin: Operator it was made for, which a comment in the source shows.
    """

    op: str
    operands: tuple[Term, ...]
    dtype: str
    data: Hashable
    free: frozenset[Var]
    below: int | None
    origin: str


class Terms:
    """Creates terms, each only once.

    Attributes:
        origin: `Term.origin` of the terms made from now on.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Term] = {}
        self._vars: dict[Hashable, Var] = {}
        self.origin = ""

    # Loop variables

    def var(self, stem: str, axis: int | None, extent: int) -> Var:
        """Return the loop variable of a name, an axis and an extent; the same for repeated calls."""
        key = (stem, axis, extent)
        if key not in self._vars:
            self._vars[key] = Var(stem, axis, extent)
        return self._vars[key]

    def of(self, var: Var) -> Term:
        """Return the value of a variable; 0 if that is its only value."""
        return self.index(0) if var.extent <= 1 else self._make("var", (), "i32", var, frozenset({var}), var.extent)

    # Operations

    def const(self, value: float | int | bool, dtype: str) -> Term:
        """Return a number as a term."""
        number: float | int = value
        if dtype == "i1":
            number = bool(value)
        elif dtype.startswith(("i", "u")):
            number = int(value)
        else:
            number = float(value)
        key = math.copysign(1.0, number), repr(number)  # -0.0 is not 0.0
        return self._make("const", (), dtype, (number, key), frozenset(), None)

    def apply(self, op: str, *operands: Term, dtype: str | None = None, data: Hashable = None) -> Term:
        """Return an uninterpreted operation; its type is the first operand's unless given."""
        free = frozenset[Var]().union(*(each.free for each in operands))
        return self._make(op, operands, dtype or operands[0].dtype, data, free, None)

    def cast(self, term: Term, dtype: str) -> Term:
        """Convert to another type: floats are truncated to integers, values other than zero are true."""
        if term.dtype == dtype:
            return term
        if term.op == "const" and dtype not in ("f16", "bf16"):
            number = value_of(term)
            if math.isfinite(number):
                return self.const(number, dtype)
        if dtype == "i1":
            return self.apply("ne", term, self.const(0, term.dtype), dtype="i1")
        if dtype in ("f16", "bf16") and term.dtype != "f32":
            term = self.cast(term, "f32")  # Triton's interpreter gets from an integer to a bfloat16 no other way
        return self.apply("cast", term, dtype=dtype)

    def load(self, parameter: str, offset: Term, dtype: str) -> Term:
        """Return an element of a parameter, `offset` elements from its start."""
        return self.apply("load", offset, dtype=dtype, data=parameter)

    def reduce(self, kind: str, body: Term, var: Var) -> Term:
        """Sum, product, maximum or minimum of a body over a loop variable of axis 1.

        Args:
            kind: `"sum"`, `"prod"`, `"max"` or `"min"`.
            body: One element of what is reduced.
            var: What is reduced over.
        """
        if var.extent == 1:
            return body
        return self._make("reduce", (body,), body.dtype, (kind, var), body.free - {var}, None)

    def dot(self, left: Term, right: Term, inner: tuple[Var, Var], precision: str) -> Term:
        """Return a product of tiles, summed over the inner extent in float32.

        Args:
            left: Element of the left operand, over a variable of axis 0 and `inner[0]`.
            right: Element of the right operand, over `inner[1]` and a variable of axis 1.
            inner: The inner extent, once along axis 1 and once along axis 0.
            precision: `"ieee"` or `"tf32"`.
        """
        free = (left.free - {inner[0]}) | (right.free - {inner[1]})
        return self._make("dot", (left, right), "f32", (inner, precision), free, None)

    def within(self, condition: Term, index: Term, extent: int) -> Term:
        """Return an index valid where a condition holds, 0 elsewhere, so that loads need no mask for it.

        Args:
            condition: Where the index is valid.
            index: The index, from 0 to below `extent` where the condition holds.
            extent: Extent of the axis.
        """
        free = condition.free | index.free
        return self._make("where", (condition, index, self.index(0)), "i32", None, free, extent)

    # Index arithmetic, on numbers that are not negative unless they come from `signed`

    def index(self, value: int) -> Term:
        """Return a constant index."""
        below = value + 1 if value >= 0 else None
        return self._make("const", (), "i32", (value, (1.0, repr(value))), frozenset(), below)

    def plus(self, a: Term, b: Term) -> Term:
        """Return the sum of two indices."""
        if a.op == "const":
            a, b = b, a
        if b.op == "const":
            if value_of(b) == 0:
                return a
            if a.op == "const":
                return self.index(int(value_of(a) + value_of(b)))
        below = None if a.below is None or b.below is None else a.below + b.below - 1
        return self._make("add", (a, b), "i32", None, a.free | b.free, below)

    def times(self, a: Term, factor: int) -> Term:
        """Return an index times a factor."""
        if factor == 1:
            return a
        if factor == 0:
            return self.index(0)
        if a.op == "const":
            return self.index(int(value_of(a)) * factor)
        if a.op == "mul" and a.operands[1].op == "const":
            return self.times(a.operands[0], int(value_of(a.operands[1])) * factor)
        below = None if a.below is None or factor < 0 else (a.below - 1) * factor + 1
        return self._make("mul", (a, self.index(factor)), "i32", None, a.free, below)

    def quotient(self, a: Term, divisor: int) -> Term:
        """Return the integer quotient."""
        if divisor == 1:
            return a
        if a.below is not None and a.below <= divisor:
            return self.index(0)
        if a.op == "const":
            return self.index(int(value_of(a)) // divisor)
        split = self._split(a, divisor)
        if split is not None:
            return self.plus(split[0], self.quotient(split[1], divisor))
        if a.op == "floordiv" and a.operands[1].op == "const":
            return self.quotient(a.operands[0], divisor * int(value_of(a.operands[1])))
        below = None if a.below is None else (a.below - 1) // divisor + 1
        return self._make("floordiv", (a, self.index(divisor)), "i32", None, a.free, below)

    def remainder(self, a: Term, divisor: int) -> Term:
        """Return the remainder."""
        if divisor == 1:
            return self.index(0)
        if a.below is not None and a.below <= divisor:
            return a
        if a.op == "const":
            return self.index(int(value_of(a)) % divisor)
        split = self._split(a, divisor)
        if split is not None:
            return self.remainder(split[1], divisor)
        return self._make("mod", (a, self.index(divisor)), "i32", None, a.free, divisor)

    def _split(self, a: Term, divisor: int) -> tuple[Term, Term] | None:
        """Split a sum into (q, r) with `a == q * divisor + r`: addends known to be multiples, and the others."""
        if a.below is None:
            return None
        whole, rest, found = self.index(0), self.index(0), False
        for part in _addends(a):
            factor = _factor(part)
            if factor and factor % divisor == 0:
                found = True
                part = part.operands[0] if part.op == "mul" else self.index(1)
                whole = self.plus(whole, self.times(part, factor // divisor))
            else:
                rest = self.plus(rest, part)
        return (whole, rest) if found else None

    def unravel(self, flat: Term, shape: Sequence[int]) -> tuple[Term, ...]:
        """Return the index that corresponds to a row-major offset."""
        index: list[Term] = []
        for extent in reversed(shape):
            index.append(self.remainder(flat, extent) if len(index) < len(shape) - 1 else flat)
            flat = self.quotient(flat, extent)
        return tuple(self.index(0) if extent == 1 else at for at, extent in zip(reversed(index), shape, strict=True))

    def ravel(self, index: Sequence[Term], shape: Sequence[int]) -> Term:
        """Return the row-major offset of an index; indices that cover one loop variable are merged into it."""
        flat = self.index(0)
        for at, extent in zip(index, shape, strict=True):
            flat = self._joined(flat, extent, at)
        return flat

    def _joined(self, high: Term, extent: int, low: Term) -> Term:
        """Return `high * extent + low`; `(b + a // n) * n + a % n` is recognised as `b * n + a`."""
        if low.op == "mod" and value_of(low.operands[1]) == extent:
            part = self.quotient(low.operands[0], extent)
            rest, found = self.index(0), False
            for each in _addends(high):
                if each is part and not found:
                    found = True
                else:
                    rest = self.plus(rest, each)
            if found:
                return self.plus(self.times(rest, extent), low.operands[0])
        if high.op == "mod" and low.op == "mod" and value_of(low.operands[1]) == extent:
            whole, over = low.operands[0], extent * int(value_of(high.operands[1]))
            if high.operands[0] is self.quotient(whole, extent):
                return self.remainder(whole, over)
        return self.plus(self.times(high, extent), low)

    def _make(
        self,
        op: str,
        operands: tuple[Term, ...],
        dtype: str,
        data: Hashable,
        free: frozenset[Var],
        below: int | None,
    ) -> Term:
        key = (op, operands, dtype, data, below)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Term(op, operands, dtype, data, free, below, self.origin)
        return made


def _addends(term: Term) -> tuple[Term, ...]:
    return tuple(part for each in term.operands for part in _addends(each)) if term.op == "add" else (term,)


def _factor(term: Term) -> int:
    """Return a factor that an index is known to be a multiple of; 0 if unknown."""
    if term.op == "const":
        return int(value_of(term))
    return int(value_of(term.operands[1])) if term.op == "mul" and term.operands[1].op == "const" else 0


def value_of(term: Term) -> float | int:
    """Return the number of a constant term."""
    assert term.op == "const"
    assert isinstance(term.data, tuple)
    number: float | int = term.data[0]
    return number
