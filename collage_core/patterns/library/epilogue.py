"""What may follow a product or a convolution in one kernel: a bias, something added, an activation."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import TypeAlias

from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.patterns import NodeContext, Pattern, is_constant, is_op, wildcard

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


def view_of(value: Pattern) -> Pattern:
    """The same bytes under another static shape: a Reshape, say, which no kernel is needed for."""
    operator = is_op("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")(value, ...)
    return operator.which(_is_view, "a view of a static shape")


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """What has been computed so far, step by step, with at most one view between two steps.

    Attributes:
        plain: Without a view.
        seen: With one behind one of the steps, not the last; None while there is but one step.
    """

    plain: Pattern
    seen: Pattern | None = None

    def then(self, step: Callable[[Pattern], Pattern], choice: bool | None = True) -> Steps:
        """One step more.

        Args:
            step: The pattern of its result from that of its operand.
            choice: Whether it has to be there; None if it may be.
        """
        if choice is False:
            return self
        earlier = view_of(self.plain)
        taken = Steps(step(self.plain), step(earlier if self.seen is None else self.seen | earlier))
        return taken.either(self) if choice is None else taken

    def either(self, other: Steps) -> Steps:
        """These steps, which are preferred, or others."""
        seen = [each.seen for each in (self, other) if each.seen is not None]
        return Steps(self.plain | other.plain, any_of(*seen) if seen else None)

    def chosen(self, viewed: bool | None) -> Pattern:
        """The whole, with a view between two steps or without; None if there may be one.

        Raises:
            ValueError: If there is to be one and there is nothing to have it between.
        """
        if viewed and self.seen is None:
            raise ValueError("a view stands between two steps, and there is but one")
        if viewed is False or self.seen is None:
            return self.plain
        return self.seen if viewed else self.plain | self.seen


def finished(value: Steps, *, residual: bool | None, activation: Activation | None, prefix: str) -> Steps:
    """A value with something computed added to it, by an Add or a Sum of two, then activated.

    Args:
        value: The value.
        residual: Whether something that is no constant is added, captured as `residual`; None if it may be.
        activation: What follows, its result captured as `activation`; None for nothing.
        prefix: Goes before the names.
    """
    added = (~is_constant()).named(f"{prefix}residual")
    summed = value.then(lambda each: is_op("Add", "Sum")(each, added), residual)
    if activation is None:
        return summed

    def active(each: Pattern) -> Pattern:
        pattern = is_op(activation)(each) if isinstance(activation, str) else activation(each)
        return pattern.named(f"{prefix}activation")

    return summed.then(active)


def is_vector(spec: TensorSpec) -> bool:
    """Whether a value has at most one axis that is longer than one; its shape has to be known."""
    return spec.shape is not None and sum(extent != 1 for extent in spec.shape) <= 1


def _is_view(node: NodeContext) -> bool:
    return node.graph.is_host(node.index)
