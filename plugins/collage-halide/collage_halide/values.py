"""Values of a group, each as something that has an element at every index.

An operator asks its operands for elements, and these ask on. So chains of operators become one expression, operators
that move elements cost index arithmetic alone, and what nobody reads is never computed. Where this ends, in memory or
in a stage of its own, is in `stages.py`.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from collage_halide import hl
from collage_halide.elements import ElementType
from collage_halide.indices import Index, fixed

Element: TypeAlias = Callable[[tuple[Index, ...]], Any]
"""Returns the expression of an element."""
Formula: TypeAlias = Callable[..., Any]
"""Returns the expression of an element of the result from one element of each operand, in the types computed in."""

CHEAP = 1
"""Cost of an arithmetic operation, the unit of `Value.cost`."""
DEAR = 12
"""Cost of a function as exp or erf."""


class Memo:
    """Expressions that were made already, so that a graph of operators stays a graph."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], Any] = {}
        self._numbers = itertools.count()

    def number(self) -> int:
        """Return a number that no value has."""
        return next(self._numbers)

    def clear(self) -> None:
        """Forget everything: what is read next is read by another stage."""
        self._made.clear()

    def get(self, value: int, index: Sequence[Index], make: Callable[[], Any]) -> Any:
        """Return an element's expression, made at first use."""
        key = value, ",".join(each.key for each in index)
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


class Value(abc.ABC):
    """A tensor.

    Args:
        shape: Its extents.
        kind: Type of its elements.

    Attributes:
        cost: About how many operations an element takes.
        scattered: Whether elements that are side by side come from far apart in memory.
        phases: Elements along the last axis after which another element of memory is read: every so many of them read
            side by side.
    """

    cost = 0
    scattered = False
    phases = 1

    def __init__(self, shape: Sequence[int], kind: ElementType) -> None:
        self.shape = tuple(shape)
        self.kind = kind

    @abc.abstractmethod
    def at(self, index: Sequence[Index]) -> Any:
        """Return an element, in the value's type."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def wide(self, index: Sequence[Index]) -> Any:
        """Return an element in the type that is computed in."""
        element = self.at(index)
        return element if self.kind.wide is self.kind else self.kind.wide.cast(element)

    def broadcast(self, index: Sequence[Index]) -> tuple[Index, ...]:
        """Return the index of the element that NumPy's broadcasting pairs with an index of the result."""
        own = index[len(index) - len(self.shape) :]
        return tuple(fixed(0) if extent == 1 else at for at, extent in zip(own, self.shape, strict=True))

    def merges(self, axis: int) -> bool:
        """Return whether an axis and the next one can be merged at no cost."""
        return 1 in self.shape[axis : axis + 2]

    @property
    def unshaped(self) -> Value:
        """The value whose elements these are, in the same order."""
        return self

    def reshaped(self, shape: Sequence[int]) -> Value:
        """Return the same elements in the same order under another shape."""
        return self if tuple(shape) == self.shape else Reshaped(self, shape)


class Number(Value):
    """One number, known when the kernel is made.

    Args:
        value: The number.
        kind: Its type.
        shape: Extents, each 1.
    """

    def __init__(self, value: Any, kind: ElementType, shape: Sequence[int]) -> None:
        super().__init__(shape, kind)
        self.value = value

    def at(self, index: Sequence[Index]) -> Any:
        """Return the number."""
        return self.kind.constant(self.value)

    def merges(self, axis: int) -> bool:
        """Return True."""
        return True

    def reshaped(self, shape: Sequence[int]) -> Value:
        """Return the number under another shape."""
        return Number(self.value, self.kind, shape)


class Reshaped(Value):
    """The elements of another value in the same order; where axes do not match, by division.

    Args:
        source: The other value.
        shape: Extents.
    """

    def __init__(self, source: Value, shape: Sequence[int]) -> None:
        super().__init__(shape, source.kind)
        self._source = source
        self.cost = source.cost
        self.scattered = source.scattered

    @property
    def unshaped(self) -> Value:
        """The value that is reshaped."""
        return self._source.unshaped

    def at(self, index: Sequence[Index]) -> Any:
        """Return the element that is as far from the first one."""
        own: list[Index] = []
        for theirs, ours in matched(self._source.shape, self.shape):
            flat = fixed(0)
            for axis in range(*ours):
                flat = flat * self.shape[axis] + index[axis]
            if theirs[1] - theirs[0] == 1:
                own.append(flat)
                continue
            parts: list[Index] = []
            for axis in reversed(range(*theirs)):
                parts.append(flat % self._source.shape[axis] if axis > theirs[0] else flat)
                flat = flat // self._source.shape[axis]
            own.extend(reversed(parts))
        return self._source.at(own)

    def reshaped(self, shape: Sequence[int]) -> Value:
        """Return the source under another shape."""
        return self._source.reshaped(shape)


class Moved(Value):
    """A value whose elements are found by a function of the index.

    Args:
        shape: Extents.
        kind: Type of its elements.
        element: Returns an element, in that type or the one that is computed in.
        memo: Keeps what was made.
        cost: About how many operations an element takes.
        phases: See `Value`.
    """

    def __init__(
        self, shape: Sequence[int], kind: ElementType, element: Element, memo: Memo, cost: int, phases: int = 1
    ) -> None:
        super().__init__(shape, kind)
        self._element = element
        self._memo = memo
        self._number = memo.number()
        self.cost = cost
        self.phases = phases

    def at(self, index: Sequence[Index]) -> Any:
        """Return an element."""
        return self._memo.get(self._number, index, lambda: _as(self.kind, self._element(tuple(index))))


class Pointwise(Value):
    """A value each element of which is a formula of one element of each operand, after NumPy's broadcasting.

    Args:
        shape: Extents.
        kind: Type of its elements.
        operands: What the formula is of.
        formula: Returns an element in the type that is computed in.
        memo: Keeps what was made.
        cost: About how many operations the formula takes.
    """

    def __init__(
        self,
        shape: Sequence[int],
        kind: ElementType,
        operands: Sequence[Value],
        formula: Formula,
        memo: Memo,
        cost: int = CHEAP,
    ) -> None:
        super().__init__(shape, kind)
        self._operands = tuple(operands)
        self._formula = formula
        self._memo = memo
        self._number = memo.number()
        self._own_cost = cost
        self.scattered = any(each.scattered for each in self._operands)
        self.cost = cost + sum(each.cost for each in self._operands)
        self.phases = max((each.phases for each in self._operands if each.shape[-1:] == self.shape[-1:]), default=1)

    def at(self, index: Sequence[Index]) -> Any:
        """Return an element."""

        def make() -> Any:
            operands = [each.wide(each.broadcast(index)) for each in self._operands]
            return _as(self.kind, self._formula(*operands))

        return self._memo.get(self._number, index, make)

    def merges(self, axis: int) -> bool:
        """Return whether an axis and the next one can be merged in all operands at no cost."""
        if 1 in self.shape[axis : axis + 2]:
            return True
        for each in self._operands:
            own = axis - (len(self.shape) - len(each.shape))
            extents = each.shape[max(own, 0) : own + 2] if own + 2 > 0 else ()
            if all(extent == 1 for extent in extents):
                continue
            if own < 0 or extents != self.shape[axis : axis + 2] or not each.merges(own):
                return False
        return True

    def reshaped(self, shape: Sequence[int]) -> Value:
        """Return the formula of reshaped operands, if broadcasting allows it."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        if not self.size:
            return Reshaped(self, shape)  # of which no element is ever asked for
        groups = matched(self.shape, shape)
        operands = []
        for each in self._operands:
            padded = (1,) * (len(self.shape) - len(each.shape)) + each.shape
            extents: list[int] = []
            for theirs, ours in groups:
                own = padded[slice(*theirs)]
                if all(extent == 1 for extent in own):
                    extents.extend(1 for _ in range(*ours))
                elif own == self.shape[slice(*theirs)]:
                    extents.extend(shape[slice(*ours)])
                elif self.shape[slice(*theirs)] == shape[slice(*ours)]:
                    extents.extend(own)
                else:
                    return Reshaped(self, shape)
            operands.append(each.reshaped(extents))
        return Pointwise(shape, self.kind, operands, self._formula, self._memo, self._own_cost)


def matched(old: Sequence[int], new: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return which axes of two shapes of one size, which is not 0, hold the same elements, each as short as can be.

    Examples:
        >>> matched((2, 3, 4), (6, 4))
        [((0, 2), (0, 1)), ((2, 3), (1, 2))]
        >>> matched((1, 4), (4,))
        [((0, 2), (0, 1))]
        >>> matched((4, 1), (2, 2))
        [((0, 2), (0, 2))]
    """
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    start_old = start_new = at_old = at_new = 0
    while at_old < len(old) or at_new < len(new):
        a = b = 1
        start_old, start_new = at_old, at_new
        if at_old < len(old) and at_new < len(new):
            a, b = old[at_old], new[at_new]
            at_old, at_new = at_old + 1, at_new + 1
        while a != b:
            if a < b:
                a, at_old = a * old[at_old], at_old + 1
            else:
                b, at_new = b * new[at_new], at_new + 1
        while at_old < len(old) and old[at_old] == 1 and (at_new == len(new) or new[at_new] != 1):
            at_old += 1
        while at_new < len(new) and new[at_new] == 1 and (at_old == len(old) or old[at_old] != 1):
            at_new += 1
        found.append(((start_old, at_old), (start_new, at_new)))
    return found


def _as(kind: ElementType, expression: Any) -> Any:
    return expression if isinstance(expression, hl.Expr) and expression.type() == kind.halide else kind.cast(expression)
