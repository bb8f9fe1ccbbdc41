"""An entry of the tables of operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from collage_halide.elements import FLOATS
from collage_halide.op import Op
from collage_halide.scope import Scope
from collage_halide.values import Value

Operands: TypeAlias = Sequence[Value | None]
Define: TypeAlias = Callable[[Scope, Op, Operands], Sequence[Value | None]]
"""Returns the outputs of a node from its inputs; None stands for what is left out, or nobody reads."""
Check: TypeAlias = Callable[[Op], None]
"""Raises `Refused` if a node has no kernel; sees constants and shapes, and needs no library."""


def anything(op: Op) -> None:
    """Check nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """What is known of an operator.

    Attributes:
        define: Makes its outputs.
        types: Types of its data, by the names in `elements.py`.
        data: Position of the input that has such a type.
        check: Refuses further forms.
    """

    define: Define
    types: frozenset[str] = FLOATS
    data: int = 0
    check: Check = anything


def given(operands: Operands, place: int) -> Value:
    """Return an operand that is there."""
    value = operands[place]
    assert value is not None
    return value


def optional(operands: Operands, place: int) -> Value | None:
    """Return an operand; None if it is left out."""
    return operands[place] if place < len(operands) else None
