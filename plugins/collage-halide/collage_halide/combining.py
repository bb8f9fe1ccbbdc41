"""How elements become one: what a reduction begins with, and how it goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.arithmetic import added, product
from collage_halide.elements import ElementType


def _largest(kind: ElementType, held: Any, element: Any) -> Any:
    return hl.select(element > held if not kind.is_float else (element > held) | hl.is_nan(element), element, held)


def _smallest(kind: ElementType, held: Any, element: Any) -> Any:
    return hl.select(element < held if not kind.is_float else (element < held) | hl.is_nan(element), element, held)


COMBINE: Mapping[str, Callable[[ElementType, Any, Any], Any]] = MappingProxyType(
    {
        "sum": lambda kind, held, element: added(held, element),
        "prod": lambda kind, held, element: product(held, element),
        "max": _largest,
        "min": _smallest,
    }
)
"""How two values become one; a maximum or minimum with NaN is NaN, as NumPy's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """Where the largest or smallest element is, the first or the last of equals; NaN before numbers, as in NumPy.

    Attributes:
        sign: 1 for the largest, -1 for the smallest.
        last: Whether the last of equals is wanted.
    """

    sign: int
    last: bool

    @property
    def no_place(self) -> int:
        """A place that all others are preferred to."""
        return -1 if self.last else 2**31 - 1

    def takes(self, kind: ElementType, held: Any, element: Any) -> Any:
        """Return whether an element takes the place of the held one, where places rise from the one held at first."""
        beyond, equal = self._beyond(element, held), element == held
        if not kind.is_float:
            return beyond | equal if self.last else beyond
        if self.last:
            return beyond | equal | hl.is_nan(element)
        # It does if it is not at most the held one: beyond it, or NaN. LLVM makes one comparison of less and equal; of
        # <= in vectors Halide 21 makes the contrary of >, which is true of NaN.
        return ~(self._beyond(held, element) | equal | hl.is_nan(held))

    def better(self, kind: ElementType, held: Any, known: Any, element: Any, at: Any) -> Any:
        """Return whether an element at any place takes that of the held one, whose place is known."""
        nearer = at > known if self.last else at < known
        equal = (element == held) & nearer
        if not kind.is_float:
            return self._beyond(element, held) | equal
        strange, before = hl.is_nan(element), hl.is_nan(held)
        return (strange & (~before | nearer)) | (~before & (self._beyond(element, held) | equal))

    def _beyond(self, element: Any, other: Any) -> Any:
        return element > other if self.sign > 0 else element < other


ARGUMENTS: Mapping[str, Argument] = MappingProxyType(
    {
        "argmax": Argument(1, last=False),
        "argmin": Argument(-1, last=False),
        "last argmax": Argument(1, last=True),
        "last argmin": Argument(-1, last=True),
    }
)


def neutral(how: str, kind: ElementType) -> float | int:
    """Return the number that a reduction begins with."""
    if "max" in how:
        return kind.least
    if "min" in how:
        return kind.most
    return 1 if how == "prod" else 0
