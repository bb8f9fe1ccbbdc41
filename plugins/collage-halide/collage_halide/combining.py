"""How elements become one: what a reduction begins with, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.elements import ElementType


def _largest(kind: ElementType, held: Any, element: Any) -> Any:
    return hl.select(element > held if not kind.is_float else (element > held) | hl.is_nan(element), element, held)


def _smallest(kind: ElementType, held: Any, element: Any) -> Any:
    return hl.select(element < held if not kind.is_float else (element < held) | hl.is_nan(element), element, held)


COMBINE: Mapping[str, Callable[[ElementType, Any, Any], Any]] = MappingProxyType(
    {
        "sum": lambda kind, held, element: held + element,
        "prod": lambda kind, held, element: held * element,
        "max": _largest,
        "min": _smallest,
    }
)
"""How two values become one; a maximum or minimum with NaN is NaN, as NumPy's."""


def _better(sign: int, last: bool) -> Callable[[ElementType, Any, Any, Any, Any], Any]:
    """Return whether an element takes the place of the held one.

    The first of equals, or the last one, wins; NaN before numbers, as in NumPy. Nothing is held at place -1.
    """

    def better(kind: ElementType, held: Any, known: Any, element: Any, at: Any) -> Any:
        above = element > held if sign > 0 else element < held
        equal = (element == held) & (at > known if last else at < known)
        found = above | equal
        if kind.is_float:
            both = hl.is_nan(element) & hl.is_nan(held) & (at > known if last else at < known)
            found = (found & ~hl.is_nan(held)) | (hl.is_nan(element) & ~hl.is_nan(held)) | both
        return found | (known < 0)

    return better


ARGUMENTS: Mapping[str, Callable[[ElementType, Any, Any, Any, Any], Any]] = MappingProxyType(
    {
        "argmax": _better(1, last=False),
        "argmin": _better(-1, last=False),
        "last argmax": _better(1, last=True),
        "last argmin": _better(-1, last=True),
    }
)
"""Whether an element takes the place of the held one, where the place of the largest or smallest is wanted."""


def neutral(how: str, kind: ElementType) -> float | int:
    """Return the number that a reduction begins with."""
    if "max" in how:
        return kind.least
    if "min" in how:
        return kind.most
    return 1 if how == "prod" else 0
