"""Thirty products and convolutions of real models, for `benchmarks/gpu_variants.py`.

Each is a layer of a model of `models/torch_zoo`, named as PyTorch names modules, or of the suite, named as
its file names nodes. A layer consists of the operators a toolchain is offered: the product, its bias
(normalisations are folded into convolutions), and a Relu where one follows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir

from collage_testing import GraphBuilder

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A layer.

    Attributes:
        model: Name of the model, in the zoo or in the suite.
        layer: Name of the layer in the model.
        operator: `MatMul`, `Conv` or `ConvTranspose`.
        reads: Shape of its input, including the batch.
        weight: Shape of its weight, as in ONNX.
        strides: Strides of a convolution's windows, by spatial axis.
        pads: Padding of the image, on both sides of each spatial axis.
        group: Groups of channels.
        relu: Whether a Relu follows.
    """

    model: str
    layer: str
    operator: str
    reads: tuple[int, ...]
    weight: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    group: int = 1
    relu: bool = False

    @property
    def key(self) -> str:
        """Key of its results."""
        return f"{self.model} {self.layer} {'x'.join(map(str, self.reads))}"

    @property
    def channels(self) -> int:
        """Channels, or columns, of its output."""
        return {"MatMul": self.weight[-1], "Conv": self.weight[0]}.get(self.operator, self.weight[1] * self.group)

    @property
    def gives(self) -> tuple[int, ...]:
        """Shape of its output."""
        if self.operator == "MatMul":
            return (*self.reads[:-1], self.channels)
        windows = zip(self.reads[2:], self.weight[2:], self.strides, self.pads, strict=True)
        if self.operator == "Conv":
            space = tuple((size + 2 * pad - kernel) // stride + 1 for size, kernel, stride, pad in windows)
        else:
            space = tuple((size - 1) * stride + kernel - 2 * pad for size, kernel, stride, pad in windows)
        return (self.reads[0], self.channels, *space)

    @property
    def gflop(self) -> float:
        """Work of the product, in 1e9 operations: two for each pair of numbers that is multiplied."""
        # each number of the result is a sum over a weight's share; transposed, each number read is added that often
        ends = self.reads if self.operator == "ConvTranspose" else self.gives
        share = {"MatMul": self.weight[0]}.get(self.operator, math.prod(self.weight[1:]))
        return 2 * math.prod(ends) * share / 1e9

    @property
    def about(self) -> str:
        """The shape in words: `[8, 128, 768] x [768, 768]`."""
        more = [f"stride {self.strides[-1]}"] if self.strides and self.strides[-1] > 1 else []
        more += [f"{self.group} groups"] if self.group > 1 else []
        more += ["Relu"] if self.relu else []
        return ", ".join([f"{self.operator} {list(self.reads)} x {list(self.weight)}", *more])


def _product(model: str, layer: str, *reads: int, columns: int) -> Shape:
    return Shape(model=model, layer=layer, operator="MatMul", reads=reads, weight=(reads[-1], columns))


def _convolution(
    model: str,
    layer: str,
    reads: Sequence[int],
    channels: int,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    group: int = 1,
    relu: bool = False,
) -> Shape:
    axes = len(kernel)
    return Shape(
        model=model,
        layer=layer,
        operator="Conv",
        reads=tuple(reads),
        weight=(channels, reads[1] // group, *kernel),
        strides=tuple(strides) or (1,) * axes,
        pads=tuple(pads) or (0,) * axes,
        group=group,
        relu=relu,
    )


SHAPES = (
    _product("bert", "layers.0.query", 8, 128, 768, columns=768),
    _product("bert", "layers.0.wide", 8, 128, 768, columns=3072),
    _product("bert", "layers.0.narrow", 8, 128, 3072, columns=768),
    _product("bert", "pooler", 8, 768, columns=768),
    _product("bert", "layers.0.wide", 1, 128, 768, columns=3072),
    _product("gpt2", "layers.0.qkv", 8, 128, 768, columns=2304),
    _product("gpt2", "layers.0.mlp.2", 1, 128, 3072, columns=768),
    _product("vit", "layers.0.qkv", 8, 197, 768, columns=2304),
    _product("vit", "layers.0.out", 8, 197, 768, columns=768),
    _product("vit", "layers.0.mlp.0", 1, 197, 768, columns=3072),
    _product("vit", "layers.0.mlp.2", 8, 197, 3072, columns=768),
    _product("vit", "head", 8, 768, columns=1000),
    _product("convnext", "features.2.wide", 8, 56, 56, 96, columns=384),
    _product("convnext", "features.12.wide", 8, 14, 14, 384, columns=1536),
    _product("convnext", "features.23.narrow", 8, 7, 7, 3072, columns=768),
    _convolution("resnet50", "n7", (1, 64, 56, 56), 64, (3, 3), pads=(1, 1), relu=True),
    _convolution("resnet50", "n10", (1, 64, 56, 56), 256, (1, 1)),
    _convolution("resnet50", "n93", (1, 256, 14, 14), 256, (3, 3), pads=(1, 1), relu=True),
    _convolution("resnext50", "features.0", (8, 3, 224, 224), 64, (7, 7), (2, 2), (3, 3), relu=True),
    _convolution("resnext50", "features.4.layers.3", (8, 128, 56, 56), 128, (3, 3), pads=(1, 1), group=32, relu=True),
    _convolution("resnext50", "features.5.layers.0", (8, 256, 56, 56), 128, (1, 1), relu=True),
    _convolution("resnext50", "features.8.layers.3", (8, 256, 28, 28), 256, (3, 3), pads=(1, 1), group=32, relu=True),
    _convolution("resnext50", "features.17.short.0", (8, 1024, 14, 14), 2048, (1, 1), (2, 2)),
    _convolution("resnet3d_50", "features.5.layers.3", (1, 64, 8, 28, 28), 64, (3, 3, 3), pads=(1, 1, 1), relu=True),
    _convolution("mobilenet_v2", "features.4.layers.3", (8, 96, 112, 112), 96, (3, 3), (2, 2), (1, 1), group=96),
    _convolution("mobilenet_v2", "features.20", (8, 320, 7, 7), 1280, (1, 1)),
    _convolution("convnext", "features.2.depthwise", (8, 96, 56, 56), 96, (7, 7), pads=(3, 3), group=96),
    _convolution("convnext", "features.6", (8, 96, 56, 56), 192, (2, 2), (2, 2)),
    _convolution("vit", "patches", (8, 3, 224, 224), 768, (16, 16), (16, 16)),
    Shape(
        model="dcgan",
        layer="layers.3",
        operator="ConvTranspose",
        reads=(8, 1024, 4, 4),
        weight=(1024, 512, 4, 4),
        strides=(2, 2),
        pads=(1, 1),
        relu=True,
    ),
)
"""The layers. Batches are those of `benchmarks/gpu.py`, 1 and 8."""

DTYPES = {
    "float16": (onnx_ir.DataType.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (onnx_ir.DataType.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "float32": (onnx_ir.DataType.FLOAT, np.dtype(np.float32)),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer with values.

    Attributes:
        model: The layer's model, in the dtype.
        read: Input value.
        right: Expected output, computed in float32 from the same values and rounded once.
    """

    model: onnx_ir.Model
    read: Array
    right: Array


def layer_of(shape: Shape, dtype: str, seed: int = 0) -> Layer:
    """Create a layer of a shape with seeded normal numbers; weights are scaled to keep the result's magnitude.

    Args:
        shape: Shape of the layer.
        dtype: Of `DTYPES`.
        seed: Seed of the numbers.
    """
    element, numpy_dtype = DTYPES[dtype]
    random = np.random.default_rng(seed)
    terms = shape.gflop * 1e9 / 2 / math.prod(shape.gives)
    x = random.standard_normal(shape.reads, np.float32).astype(numpy_dtype)
    w = (random.standard_normal(shape.weight, np.float32) / math.sqrt(terms)).astype(numpy_dtype)
    b = random.standard_normal(shape.channels, np.float32).astype(numpy_dtype)
    g = GraphBuilder("layer")
    given, weight, bias = g.input("x", *shape.reads, dtype=element), g.constant("weight", w), g.constant("bias", b)
    wide, along = (each.astype(np.float32) for each in (x, w)), b.astype(np.float32)
    if shape.operator == "MatMul":
        value, right = g.op("Add", g.op("MatMul", given, weight), bias), np.matmul(*wide) + along
    else:
        strides, pads = list(shape.strides), list(shape.pads * 2)
        value = g.op(shape.operator, given, weight, bias, strides=strides, pads=pads, group=shape.group)
        right = slid(shape, *wide) + along.reshape(-1, *[1] * len(shape.pads))
    if shape.relu:
        value, right = g.op("Relu", value), np.maximum(right, 0)
    return Layer(model=g.model(value), read=x, right=right.astype(numpy_dtype))


def slid(shape: Shape, x: Array, w: Array) -> Array:
    """Compute a convolution or transposed convolution in float32 without bias, one product per window position.

    ONNX's own evaluator loops over every window of three axes or of groups, which at these sizes takes minutes.

    Args:
        shape: Shape of the convolution.
        x: Shape `shape.reads`.
        w: Shape `shape.weight`.

    Returns:
        Shape `shape.gives`.
    """
    transposed = shape.operator == "ConvTranspose"
    count, _, *space = shape.gives if transposed else shape.reads
    # what windows slide over, its edges included: of a transposed convolution the result, else what is read
    edged = [size + 2 * pad for size, pad in zip(space, shape.pads, strict=True)]
    whole = np.zeros((count, (shape.gives if transposed else shape.reads)[1], *edged), np.float32)
    inside = tuple(slice(pad, pad + size) for size, pad in zip(space, shape.pads, strict=True))
    steps = shape.reads[2:] if transposed else shape.gives[2:]
    result = np.zeros((count, shape.group, shape.channels // shape.group, math.prod(steps)), np.float32)
    if not transposed:
        whole[(slice(None), slice(None), *inside)] = x
    for place in np.ndindex(*shape.weight[2:]):
        window = tuple(
            slice(start, start + step * (many - 1) + 1, step)
            for start, many, step in zip(place, steps, shape.strides, strict=True)
        )
        factor = w[(slice(None), slice(None), *place)].reshape(shape.group, -1, shape.weight[1])
        if transposed:  # rows of a weight are what is read, columns what is given
            read = x.reshape(count, shape.group, -1, math.prod(steps))
            part = np.matmul(factor.transpose(0, 2, 1), read)
            whole[(slice(None), slice(None), *window)] += part.reshape(count, -1, *steps)
        else:
            read = whole[(slice(None), slice(None), *window)].reshape(count, shape.group, -1, math.prod(steps))
            result += np.matmul(factor, read)
    return whole[(slice(None), slice(None), *inside)] if transposed else result.reshape(shape.gives)
