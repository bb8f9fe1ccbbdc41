"""What may follow a product or a convolution in one kernel: a bias, something added, an activation."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TypeAlias

from collage_core.ir.tensor_spec import TensorSpec
from collage_core.patterns import Pattern, is_constant, is_op, wildcard

Activation: TypeAlias = str | Callable[[Pattern], Pattern]
"""An operator's type, or what makes the pattern of the activation from the one of its operand: `is_op("Relu", "Tanh")`,
`gelu_pattern`."""


def any_of(*patterns: Pattern) -> Pattern:
    """One of several patterns, the first preferred."""
    return functools.reduce(operator.or_, patterns)


def wanted(without: Pattern, having: Pattern, choice: bool | None) -> Pattern:
    """One of two patterns: with or without something, or with it where it is there.

    Args:
        without: The pattern without it.
        having: The pattern with it.
        choice: Whether it has to be there; None if it may be.
    """
    if choice is None:
        return having | without
    return having if choice else without


def vector(name: str) -> Pattern:
    """A value with at most one axis that is longer than one: what is added along rows or channels."""
    return wildcard().where(is_vector, "the shape of a vector").named(name)


def finished(value: Pattern, *, residual: bool | None, activation: Activation | None, prefix: str) -> Pattern:
    """A value with something computed added to it, then activated.

    Args:
        value: The value.
        residual: Whether something that is no constant is added, captured as `residual`; None if it may be.
        activation: What follows, its result captured as `activation`; None for nothing.
        prefix: Goes before the names.
    """
    summed = wanted(value, is_op("Add")(value, (~is_constant()).named(f"{prefix}residual")), residual)
    if activation is None:
        return summed
    active = is_op(activation)(summed) if isinstance(activation, str) else activation(summed)
    return active.named(f"{prefix}activation")


def is_vector(spec: TensorSpec) -> bool:
    """Whether a value has at most one axis that is longer than one; its shape has to be known."""
    return spec.shape is not None and sum(extent != 1 for extent in spec.shape) <= 1
