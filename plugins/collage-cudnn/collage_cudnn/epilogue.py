"""Addends and activations that follow a convolution or a product in a graph."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.contract import Unsupported
from collage_core.patterns import Match
from collage_cudnn.activations import ACTIVATIONS
from collage_cudnn.described import Drawing
from collage_cudnn.graph import Tensor


def finish(
    drawing: Drawing, match: Match, value: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Unsupported | None:
    """Add activation(value + residual + bias) to the graph, in this order.

    cuDNN's compiled kernels for a convolution add the residual before the bias; in the other order the graph is
    left to kernels compiled at run time, which support channels-last only, and float32 by tensor cores only.

    Args:
        drawing: Graph in which `value` is the last result, and bias and residual are inputs.
        match: Match that holds the activation's node and attributes.
        value: Tensor to which the epilogue is applied.
        bias: Tensor broadcast to `value`.
        residual: Tensor with the extents of `value`.
        activation: A name of `ACTIVATIONS`; empty for none.

    Returns:
        Why cuDNN does not support the activation; None if it does.
    """
    for added in (residual, bias):
        if added is not None:
            value = drawing.add("add", value.dims, value.strides, {"a": value, "b": added})
    if activation:
        node = ACTIVATIONS[activation].node(match)
        if isinstance(node, Unsupported):
            return node
        drawing.add(node.kind, value.dims, value.strides, {"input": value}, attributes=node.attributes)
    return None


def along_one_axis(shape: Sequence[int | None], result: Sequence[int], axis: int) -> bool:
    """Return whether a value varies along one axis of a result only and is broadcast along all others.

    Examples:
        >>> along_one_axis((8, 1, 1), (2, 8, 5, 5), 1), along_one_axis((5,), (2, 8, 5, 5), 1)
        (True, False)
    """
    padded = (1,) * (len(result) - len(shape)) + tuple(shape)
    return padded == tuple(extent if place == axis else 1 for place, extent in enumerate(result))
