"""Groups as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collage_testing import GraphBuilder

from .cases import Build, D, number


def matched(g: GraphBuilder, name: str, dtype: D, *shape: int) -> Any:
    """A constant between a half and one and a half, in a type of which numbers cannot be drawn."""
    random = np.random.default_rng(len(name))
    return g.constant(name, ((0.5 + random.random(shape)) / max(1, shape[0]) ** 0.5).astype(dtype.numpy()))


def feed_forward(g: GraphBuilder, dtype: D) -> Any:
    """A product with work before it, its bias, GELU and a residual."""
    scaled = g.op("Mul", g.input("x", 3, 21, 40, dtype=dtype), matched(g, "scale", dtype, 40))
    product = g.op("Add", g.op("MatMul", scaled, matched(g, "w", dtype, 40, 70)), matched(g, "b", dtype, 70))
    return g.op("Add", g.op("Gelu", product), g.input("z", 3, 21, 70, dtype=dtype))


def scores(g: GraphBuilder, dtype: D) -> Any:
    """Attention's, scaled and masked, to probabilities."""
    scaled = g.op("Mul", g.input("x", 2, 3, 9, 33, dtype=dtype), number(g, dtype, 0.125))
    return g.op("Softmax", g.op("Add", scaled, g.input("mask", 2, 1, 1, 33, dtype=dtype)), axis=-1)


def norm_in_parts(g: GraphBuilder, dtype: D) -> Any:
    """Layer norm as exporters write it, of a sum."""
    x = g.op("Add", g.input("x", 5, 77, dtype=dtype), g.input("z", 5, 77, dtype=dtype))
    apart = g.op("Sub", x, g.op("ReduceMean", x, g.ints(-1)))
    variance = g.op("ReduceMean", g.op("Mul", apart, apart), g.ints(-1))
    normal = g.op("Div", apart, g.op("Sqrt", g.op("Add", variance, number(g, dtype, 1e-2))))
    return g.op("Add", g.op("Mul", normal, matched(g, "scale", dtype, 77)), matched(g, "bias", dtype, 77))


def convolution_block(g: GraphBuilder, dtype: D) -> Any:
    """A convolution with its batch normalisation, a residual and Relu."""
    weight = matched(g, "w", dtype, 12, 5, 3, 3)
    filtered = g.op("Conv", g.input("x", 2, 5, 9, 7, dtype=dtype), weight, pads=[1, 1, 1, 1])
    vectors = [matched(g, f"v{'n' * place}", dtype, 12) for place in range(4)]
    normal = g.op("BatchNormalization", filtered, *vectors)
    return g.op("Relu", g.op("Add", normal, g.input("z", 2, 12, 9, 7, dtype=dtype)))


def depthwise(g: GraphBuilder, dtype: D) -> Any:
    """A convolution per channel and hard swish."""
    filtered = g.op("Conv", g.input("x", 1, 6, 11, 9, dtype=dtype), matched(g, "w", dtype, 6, 1, 5, 5), group=6)
    return g.op("HardSwish", filtered)


def moved(g: GraphBuilder, dtype: D) -> Any:
    """Work before and after a transposition of which a part is taken."""
    turned = g.op("Transpose", g.op("Tanh", g.input("x", 6, 35, 4, dtype=dtype)), perm=[2, 0, 1])
    part = g.op("Slice", turned, g.ints(3), g.ints(33), g.ints(2))
    return g.op("Mul", part, g.input("z", 30, dtype=dtype))


def long_rows(g: GraphBuilder, dtype: D) -> Any:
    """Rows that no program holds whole."""
    return g.op("Softmax", g.input("x", 3, 20_001, dtype=dtype))


def many_rows(g: GraphBuilder, dtype: D) -> Any:
    """More blocks of rows than one, each of several rows."""
    return g.op("ReduceMax", g.op("Abs", g.input("x", 700, 33, dtype=dtype)), g.ints(-1), keepdims=0)


def large_product(g: GraphBuilder, dtype: D) -> Any:
    """Several tiles along each axis, none of which divides it."""
    return g.op("Relu", g.op("MatMul", g.input("x", 300, 270, dtype=dtype), g.input("z", 270, 333, dtype=dtype)))


GROUPS: Mapping[str, Build] = {
    each.__name__: each
    for each in (
        feed_forward,
        scores,
        norm_in_parts,
        convolution_block,
        depthwise,
        moved,
        many_rows,
        long_rows,
        large_product,
    )
}
LARGE = ("long_rows", "large_product")
