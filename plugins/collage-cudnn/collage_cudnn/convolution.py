"""Describe convolutions with their epilogue as cuDNN graphs; transposed ones as the gradient of their data.

ConvTranspose computes the data gradient of a convolution: its weight is `[in, out / groups, ...]`, which is
that convolution's filter without change. cuDNN derives the number of groups from the channels of image and
filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from collage_core.contract import Json, TensorSpec, Unsupported
from collage_core.patterns import Match, NodeContext
from collage_cudnn.described import Described, Drawing, common_dtype, one_result
from collage_cudnn.epilogue import along_one_axis, finish
from collage_cudnn.graph import DataType, Layout, Tensor
from collage_cudnn.weights import Recipe

Window = tuple[list[int], list[int], list[int], list[int]]
"""Strides, dilations, leading pads and trailing pads, along at least two axes."""


TENSOR_CORES_ONLY = frozenset({"gelu", "gelu_tanh", "silu", "quick_gelu", "softplus"})
"""Activations for which cuDNN 9.20 has only run-time compiled kernels on compute capability 9.0, as it reports."""


def describe_convolution(match: Match, layout: Layout, *, activation: str, exact: bool) -> Described | Unsupported:
    """Describe the graph of activation(conv(x, weight) + bias + residual).

    Args:
        match: Match of `conv_pattern`.
        layout: Memory layout of images during the computation.
        activation: A name of `ACTIVATIONS`; empty for none.
        exact: Whether float32 is multiplied without conversion to TF32.
    """
    if (outside := one_result(match)) is not None:
        return outside
    node = match.node("convolution")
    operands = {name: match.spec(name) for name in ("x", "weight", "bias", "residual") if name in match.captures}
    result = node.outputs[0]
    dtype = common_dtype({**operands, "result": result, "whole": match.graph.spec(match.value)})
    if isinstance(dtype, Unsupported):
        return dtype
    shape = result.static_shape
    if match.graph.spec(match.value).static_shape != shape:
        return Unsupported(f"what is added to {list(shape)} makes it larger")
    if not 3 <= len(shape) <= 5:
        return Unsupported(f"it is a convolution over {len(shape) - 2} axes; over 1, 2 and 3 there are")
    if "bias" in operands and not _is_bias(match, node, shape):
        return Unsupported(f"what is added is not one number for each of the {shape[1]} channels")
    if "residual" in operands and operands["residual"].static_shape != shape:
        return Unsupported(f"what is added has the shape {list(operands['residual'].static_shape)}, not {list(shape)}")
    followed = bool(activation) or len(operands) > 2
    if exact and dtype is DataType.FLOAT and followed and (reason := _by_tensor_cores(node, operands, activation)):
        return Unsupported(reason)
    window = _window(node, operands["x"].static_shape, operands["weight"].static_shape, shape)
    if isinstance(window, Unsupported):
        return window
    drawing = Drawing(match, dtype)
    extend = _with_two_axes(shape)

    def image(name: str) -> Tensor:
        dims = extend(operands[name].static_shape)
        return drawing.input(name, dims, layout.strides(dims), match.captures[name])

    x, weight = image("x"), image("weight")
    residual = image("residual") if "residual" in operands else None
    dims = extend(shape)
    vector, bias = (1, dims[1], *(1 for _ in dims[2:])), None
    if "bias" in operands:
        bias = drawing.input("bias", vector, layout.strides(vector), match.captures["bias"])
    elif node.op_type == "Conv" and followed:  # compiled kernels that do more than convolve have a bias
        bias = drawing.input("bias", vector, layout.strides(vector), (), recipe=Recipe.ZEROS)
    strides, dilations, before, behind = window
    attributes: dict[str, Json] = {
        "stride": strides,
        "dilation": dilations,
        "pre_padding": before,
        "post_padding": behind,
    }
    if node.op_type == "Conv":
        value = drawing.add(
            "conv_fprop", dims, layout.strides(dims), {"image": x, "weight": weight}, attributes=attributes
        )
    else:
        value = drawing.add(
            "conv_dgrad", dims, layout.strides(dims), {"loss": x, "filter": weight}, attributes=attributes
        )
    refusal = finish(drawing, match, value, bias, residual, activation)
    return drawing.done(dims) if refusal is None else refusal


def _by_tensor_cores(node: NodeContext, operands: Mapping[str, TensorSpec], activation: str) -> str:
    """Return why exact float32 has no kernel for a convolution with its epilogue; empty if it has."""
    if node.op_type == "ConvTranspose":
        return "what follows a transposed convolution of float32 is computed with tensor cores only: precision=tf32"
    depthwise = operands["weight"].static_shape[1] == 1
    if activation in TENSOR_CORES_ONLY and not depthwise:
        return f"a float32 convolution followed by {activation} is computed with tensor cores only: precision=tf32"
    return ""


def _with_two_axes(shape: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that adds the row axis, of extent 1, missing in a convolution over one axis."""
    return lambda dims: (*dims[:2], 1, *dims[2:]) if len(shape) == 3 else tuple(dims)


def _is_bias(match: Match, node: NodeContext, shape: Sequence[int]) -> bool:
    inside = len(node.node.inputs) > 2 and node.node.inputs[2] is match.captures["bias"]
    given = match.spec("bias").static_shape
    return given == (shape[1],) if inside else along_one_axis(given, shape, 1)


def _window(node: NodeContext, x: Sequence[int], weight: Sequence[int], result: Sequence[int]) -> Window | Unsupported:
    rank = len(result) - 2
    strides, dilations = (list(node.attribute(name, (1,) * rank)) for name in ("strides", "dilations"))
    extents = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, weight[2:], strict=True)]
    transposed = node.op_type == "ConvTranspose"
    image, taps = (result, x) if transposed else (x, result)  # of the convolution whose gradient a transposed one is
    automatic = node.attribute("auto_pad", "NOTSET")
    pads = list(node.attribute("pads", (0,) * (2 * rank)))
    if automatic in ("SAME_UPPER", "SAME_LOWER") or (transposed and node.attribute("output_shape")):
        pads = _pads_by_shape(strides, extents, image[2:], taps[2:], lower=automatic == "SAME_LOWER")
    before, behind = pads[:rank], pads[rank:]
    if min(pads, default=0) < 0:
        return Unsupported(f"its pads {pads} are negative")
    padding = zip(strides, extents, image[2:], taps[2:], before, behind, strict=True)
    if any((n + a + b - k) // s + 1 != count for s, k, n, count, a, b in padding):
        return Unsupported(f"its result {list(result)} is not what its window makes of {list(x)}")
    if rank == 1:
        return [1, *strides], [1, *dilations], [0, *before], [0, *behind]
    return strides, dilations, before, behind


def _pads_by_shape(
    strides: Sequence[int], extents: Sequence[int], image: Sequence[int], taps: Sequence[int], *, lower: bool
) -> list[int]:
    """Compute the pads that give a convolution of `image` the output extents `taps`.

    An odd pad element is put at the end or, for `lower`, at the beginning.
    """
    before, behind = [], []
    for stride, extent, size, count in zip(strides, extents, image, taps, strict=True):
        whole = max(0, (count - 1) * stride + extent - size)
        less, more = whole // 2, whole - whole // 2
        before.append(more if lower else less)
        behind.append(less if lower else more)
    return before + behind
