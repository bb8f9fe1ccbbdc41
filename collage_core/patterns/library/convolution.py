"""Convolutions, with the operators that libraries fuse into them."""

from __future__ import annotations

from collage_core.patterns import Pattern, is_absent, is_op, wildcard
from collage_core.patterns.library.epilogue import Activation, Steps, finished, vector, wanted


def conv_pattern(
    *,
    bias: bool | None = False,
    activation: Activation | None = None,
    residual: bool | None = False,
    operator: str = "Conv",
    prefix: str = "",
) -> Pattern:
    """Match a convolution: activation(conv(x, weight) + bias + residual), where each part is optional.

    Captures `x`, `weight`, `bias`, `residual`, `convolution` (the operator's own result) and `activation`.
    Groups, strides, dilations and the layouts a library supports are left to `check`, with
    `match.node("convolution")`.

    Args:
        bias: Whether a vector is added, as the operator's third operand or by an Add; None if it may be.
        activation: The last step: an operator's type, or a function that makes the pattern.
        residual: Whether a computed value is added after the bias; None if it may be.
        operator: `"Conv"` or `"ConvTranspose"`.
        prefix: Prepended to the capture names, for patterns with two convolutions.

    Examples:
        >>> from collage_core.ir.graph.dataflow import DataflowGraph
        >>> from collage_core.patterns import match
        >>> from collage_testing import mnist
        >>> found = match(conv_pattern(bias=True, activation="Relu"), DataflowGraph(mnist()), 3)
        >>> [node.name for node in found.contexts], found.captures["bias"].name
        (['conv_0', 'add_0', 'relu_0'], 'b0')
    """
    x, weight, added = wildcard().named(f"{prefix}x"), wildcard().named(f"{prefix}weight"), vector(f"{prefix}bias")
    alone = is_op(operator)(x, weight, is_absent()).named(f"{prefix}convolution")
    inside = is_op(operator)(x, weight, added).named(f"{prefix}convolution")
    convolution = wanted(alone, inside | is_op("Add")(alone, added), bias)
    return finished(Steps(convolution), residual=residual, activation=activation, prefix=prefix).plain
