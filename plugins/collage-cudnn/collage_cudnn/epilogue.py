"""What a graph adds and applies behind a convolution or a product."""

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
    """Draws activation(value + residual + bias), in this order.

    cuDNN's compiled kernels for a convolution add the residual before the bias; drawn the other way round, the graph is
    left to kernels made at run time, which take channels-last only and float32 by tensor cores only.

    Args:
        drawing: Where `value` is the last result, and bias and residual are inputs.
        match: For what the activation's node says.
        value: What it starts from.
        bias: Broadcast to it.
        residual: Of its extents.
        activation: A name of `ACTIVATIONS`; empty for none.

    Returns:
        Why the activation is none of cuDNN's, if it is not.
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
    """Whether a value has an element for each place of one axis of a result, and is repeated along all others.

    Examples:
        >>> along_one_axis((8, 1, 1), (2, 8, 5, 5), 1), along_one_axis((5,), (2, 8, 5, 5), 1)
        (True, False)
    """
    padded = (1,) * (len(result) - len(shape)) + tuple(shape)
    return padded == tuple(extent if place == axis else 1 for place, extent in enumerate(result))
