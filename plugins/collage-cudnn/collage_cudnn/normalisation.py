"""Describe normalisations as cuDNN's nodes for them.

cuDNN normalises `[batch, channels, space...]` over all axes along which the scale has more than one
element, and so takes layer and RMS norm over the last axis as `[rows, channels, 1, 1]`; instance norm is
over space. Batch norm at inference is a factor and a shift per channel, computed beforehand from its four
vectors: on compute capability 9.0, cuDNN 9.20 has no engine for the node `batchnorm_inference` (observed),
but has some for a product and a sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx_ir

from collage_core.contract import TensorSpec, Unsupported
from collage_core.ir.values.content import constant_of
from collage_core.patterns import Match
from collage_cudnn.described import Described, Drawing, common_dtype, one_result
from collage_cudnn.epilogue import finish
from collage_cudnn.graph import DataType, Layout, Tensor
from collage_cudnn.weights import Recipe

_LAST = Layout.CHANNELS_LAST


def describe_layer_norm(match: Match, layout: Layout, *, kind: str) -> Described | Unsupported:
    """Describe the graph of a norm over the last axis.

    Args:
        match: Match of `layer_norm_pattern` or `rms_norm_pattern`.
        layout: Ignored.
        kind: `"layernorm"` or `"rmsnorm"`.
    """
    if (outside := one_result(match)) is not None:
        return outside
    vectors = {name: match.captures[name] for name in ("scale", "bias") if name in match.captures}
    dtype = _dtype(match, vectors)
    if isinstance(dtype, Unsupported):
        return dtype
    shape = match.spec("x").static_shape
    size = shape[-1]
    if "scale" not in vectors:
        return Unsupported("it has no scale, which cuDNN wants")
    if (wrong := _wrong_vector(match, vectors, size)) is not None:
        return wrong
    epsilon = _epsilon(match)
    if epsilon is None:
        return Unsupported("its epsilon is computed")
    dims = (math.prod(shape[:-1]), size, 1, 1)
    drawing = Drawing(match, dtype)
    reads = {"input": drawing.input("x", dims, _LAST.strides(dims), match.captures["x"])}
    reads |= _vectors(drawing, vectors, (1, size, 1, 1))
    if kind == "layernorm" and "bias" not in vectors:
        reads["bias"] = drawing.input("bias", (1, size, 1, 1), _LAST.strides((1, size, 1, 1)), (), recipe=Recipe.ZEROS)
    drawing.add(kind, dims, _LAST.strides(dims), reads, scalars={"epsilon": epsilon})
    return drawing.done(dims)


def describe_instance_norm(match: Match, layout: Layout) -> Described | Unsupported:
    """Describe the graph of an InstanceNormalization.

    Args:
        match: Match that captures `x`, `scale` and `bias`.
        layout: Memory layout of images during the computation.
    """
    if (outside := one_result(match)) is not None:
        return outside
    vectors = {name: match.captures[name] for name in ("scale", "bias")}
    dtype = _dtype(match, vectors)
    if isinstance(dtype, Unsupported):
        return dtype
    dims = _image(match)
    if isinstance(dims, Unsupported):
        return dims
    if (wrong := _wrong_vector(match, vectors, dims[1])) is not None:
        return wrong
    drawing = Drawing(match, dtype)
    reads = {"input": drawing.input("x", dims, layout.strides(dims), match.captures["x"])}
    reads |= _vectors(drawing, vectors, (1, dims[1], *(1 for _ in dims[2:])))
    epsilon = float(match.contexts[0].attribute("epsilon", 1e-5))
    drawing.add("instancenorm", dims, layout.strides(dims), reads, scalars={"epsilon": epsilon})
    return drawing.done(dims)


def describe_batch_norm(match: Match, layout: Layout, *, activation: str) -> Described | Unsupported:
    """Describe the graph of activation(BatchNormalization) at inference.

    Args:
        match: Match that captures `x`, `scale`, `bias`, `mean` and `variance`.
        layout: Memory layout of images during the computation.
        activation: A name of `ACTIVATIONS`; empty for none.
    """
    if (outside := one_result(match)) is not None:
        return outside
    node = next(each for each in match.contexts if each.op_type == "BatchNormalization")
    if node.attribute("training_mode", 0):
        return Unsupported("it trains")
    vectors = {name: match.captures[name] for name in ("scale", "bias", "mean", "variance")}
    dtype = _dtype(match, vectors)
    if isinstance(dtype, Unsupported):
        return dtype
    if any(constant_of(value) is None for value in vectors.values()):
        return Unsupported("its scale, bias, mean and variance are not all constants, of which two vectors are made")
    dims = _image(match)
    if isinstance(dims, Unsupported):
        return dims
    if (wrong := _wrong_vector(match, vectors, dims[1])) is not None:
        return wrong
    drawing = Drawing(match, dtype)
    x = drawing.input("x", dims, layout.strides(dims), match.captures["x"])
    vector = (1, dims[1], *(1 for _ in dims[2:]))
    epsilon = float(node.attribute("epsilon", 1e-5))
    factor, shift = (
        drawing.input(name, vector, _LAST.strides(vector), tuple(vectors.values()), recipe=recipe, number=epsilon)
        for name, recipe in (("factor", Recipe.BATCH_FACTOR), ("shift", Recipe.BATCH_SHIFT))
    )
    value = drawing.add("mul", dims, layout.strides(dims), {"a": x, "b": factor})
    value = drawing.add("add", dims, layout.strides(dims), {"a": value, "b": shift})
    refusal = finish(drawing, match, value, None, None, activation)
    return drawing.done(dims) if refusal is None else refusal


def _dtype(match: Match, vectors: Mapping[str, onnx_ir.Value]) -> DataType | Unsupported:
    specs: dict[str, TensorSpec] = {name: match.graph.spec(value) for name, value in vectors.items()}
    return common_dtype({"x": match.spec("x"), "result": match.graph.spec(match.value), **specs})


def _image(match: Match) -> tuple[int, ...] | Unsupported:
    """Return the extents, with a row axis inserted for an image of one axis."""
    shape = match.spec("x").static_shape
    if not 2 <= len(shape) <= 5:
        return Unsupported(f"it normalises {len(shape)} axes; 2 to 5 are taken")
    return (*shape[:2], *(1 for _ in range(4 - len(shape))), *shape[2:])


def _wrong_vector(match: Match, vectors: Mapping[str, onnx_ir.Value], size: int) -> Unsupported | None:
    for name, value in vectors.items():
        shape = match.graph.spec(value).static_shape
        if math.prod(shape) != size:
            return Unsupported(f"its {name} {list(shape)} is not one number for each of {size}")
    return None


def _vectors(drawing: Drawing, vectors: Mapping[str, onnx_ir.Value], dims: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: drawing.input(name, dims, _LAST.strides(dims), value) for name, value in vectors.items()}


def _epsilon(match: Match) -> float | None:
    if "epsilon" in match.captures:
        constant = match.constant("epsilon")
        return None if constant is None else float(constant.reshape(()))
    operator = next(each for each in match.contexts if each.op_type in ("LayerNormalization", "RMSNormalization"))
    return float(operator.attribute("epsilon", 1e-5))
