"""Epilogues of a product or a convolution in one kernel: a bias, an addition, an activation."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import TypeAlias

from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.patterns import NodeContext, Pattern, is_constant, is_op, wildcard

Activation: TypeAlias = str | Callable[[Pattern], Pattern]
"""An operator type, or a function from the operand's pattern to the activation's.

Examples are `is_op("Relu", "Tanh")` and `gelu_pattern`.
"""


def any_of(*patterns: Pattern) -> Pattern:
    """Match any of several patterns, preferring the first."""
    return functools.reduce(operator.or_, patterns)


def wanted(without: Pattern, having: Pattern, choice: bool | None) -> Pattern:
    """Choose between a pattern with an optional part, the one without it, or either.

    Args:
        without: The pattern without the part.
        having: The pattern with the part.
        choice: Whether the part is required; None if it is optional.
    """
    if choice is None:
        return having | without
    return having if choice else without


def vector(name: str) -> Pattern:
    """Match a value with at most one axis longer than one: an addend along rows or channels."""
    return wildcard().where(is_vector, "the shape of a vector").named(name)


def view_of(value: Pattern) -> Pattern:
    """Match a view: the same bytes under another static shape, e.g. a Reshape, which needs no kernel."""
    operator = is_op("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")(value, ...)
    return operator.which(_is_view, "a view of a static shape")


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """Pattern of the steps so far, with at most one view between two steps.

    Attributes:
        plain: The pattern without a view.
        seen: The pattern with a view after one of the steps except the last; None while there is only one step.
    """

    plain: Pattern
    seen: Pattern | None = None

    def then(self, step: Callable[[Pattern], Pattern], choice: bool | None = True) -> Steps:
        """Append a step.

        Args:
            step: Makes the pattern of the step's result from that of its operand.
            choice: Whether the step is required; None if it is optional.
        """
        if choice is False:
            return self
        earlier = view_of(self.plain)
        taken = Steps(step(self.plain), step(earlier if self.seen is None else self.seen | earlier))
        return taken.either(self) if choice is None else taken

    def either(self, other: Steps) -> Steps:
        """Return the alternative of these steps, which are preferred, and others."""
        seen = [each.seen for each in (self, other) if each.seen is not None]
        return Steps(self.plain | other.plain, any_of(*seen) if seen else None)

    def chosen(self, viewed: bool | None) -> Pattern:
        """Return the whole pattern with a view between two steps, without one, or either if `viewed` is None.

        Raises:
            ValueError: If a view is required and there is only one step.
        """
        if viewed and self.seen is None:
            raise ValueError("a view stands between two steps, and there is but one")
        if viewed is False or self.seen is None:
            return self.plain
        return self.seen if viewed else self.plain | self.seen


def finished(value: Steps, *, residual: bool | None, activation: Activation | None, prefix: str) -> Steps:
    """Append the addition of a computed value, by an Add or a Sum of two, and an activation.

    Args:
        value: The steps so far.
        residual: Whether a value that is not a constant is added, captured as `residual`; None if it may be.
        activation: The last step, its result captured as `activation`; None for no activation.
        prefix: Prepended to the capture names.
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
    """Return whether a value is known to have at most one axis longer than one; false if its shape is unknown."""
    return spec.shape is not None and sum(extent != 1 for extent in spec.shape) <= 1


def _is_view(node: NodeContext) -> bool:
    return node.graph.is_host(node.index)
