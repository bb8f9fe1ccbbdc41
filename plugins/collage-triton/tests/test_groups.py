"""Groups of operators as one kernel, against ONNX's reference: fixed ones, and random ones."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from collage_testing import GraphBuilder
from collage_triton.errors import Refused
from collage_triton.nest import nest_of
from collage_triton.tiles import Tile

from .checking import Checker, function_of

TILES = (Tile(16, 16, 1, 16), Tile(2, 4, 1, 16))
"""Rows whole, and in a loop."""


def test_a_product_has_any_prologue_and_epilogue(check: Checker) -> None:
    g = GraphBuilder()
    scaled = g.op("Sigmoid", g.op("Mul", g.input("x", 2, 9, 20), g.weight("s", 20)))
    product = g.op("MatMul", scaled, g.op("Neg", g.input("w", 20, 17)))
    biased = g.op("Gelu", g.op("Add", product, g.weight("b", 17)))

    nest = check(function_of(g, g.op("Add", biased, g.input("z", 2, 9, 17))), TILES[:1], tolerance=8.0)

    assert nest.form == "product"


def test_a_convolution_has_its_batch_normalisation_and_a_residual(check: Checker) -> None:
    g = GraphBuilder()
    filtered = g.op("Conv", g.input("x", 2, 3, 5, 6), g.weight("w", 4, 3, 3, 3), pads=[1, 1, 1, 1])
    vectors = [g.constant(f"v{n}", np.linspace(0.5, 1.5 + n, 4, dtype=np.float32)) for n in range(4)]
    normal = g.op("BatchNormalization", filtered, *vectors)

    nest = check(function_of(g, g.op("Relu", g.op("Add", normal, g.input("z", 2, 4, 5, 6)))), TILES[:1], tolerance=8.0)

    assert nest.form == "product"


def test_one_number_is_compared_with_many(check: Checker) -> None:
    g = GraphBuilder()

    check(function_of(g, g.op("Max", g.input("x", 1), g.input("z", 2))), TILES[:1])


def test_what_moves_the_elements_of_a_product_is_refused() -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))

    with pytest.raises(Refused, match="in another order"):
        nest_of(function_of(g, g.op("Transpose", product)))


@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (15, 12), (180,), (6, 30)])
def test_a_product_under_another_shape_has_its_epilogue_too(shape: tuple[int, ...], check: Checker) -> None:
    g = GraphBuilder()
    product = g.op("Relu", g.op("Gemm", g.input("x", 6, 8), g.weight("w", 8, 30), g.weight("b", 30)))
    viewed = g.op("Reshape", product, g.ints(*shape))

    nest = check(function_of(g, g.op("Tanh", g.op("Add", viewed, g.input("z", *shape)))), TILES[:1], tolerance=8.0)

    assert nest.form == "product"


def test_a_product_and_a_reduction_are_two_kernels() -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))

    with pytest.raises(Refused, match="one product"):
        nest_of(function_of(g, g.op("Softmax", product)))


def test_a_norm_written_in_parts_is_one_kernel_that_reads_each_row_once(check: Checker) -> None:
    g = GraphBuilder()
    x = g.input("x", 3, 11)
    apart = g.op("Sub", x, g.op("ReduceMean", x, g.ints(-1)))
    variance = g.op("ReduceMean", g.op("Mul", apart, apart), g.ints(-1))
    deviation = g.op("Sqrt", g.op("Add", variance, g.constant("epsilon", np.float32(1e-5))))

    nest = check(function_of(g, g.op("Gelu", g.op("Div", apart, deviation))), TILES, tolerance=4.0)

    assert (nest.form, nest.stores[0].outer.extent) == ("rows", 3)


_UNARY = ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Gelu", "HardSwish", "Softplus")
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_ROWS = ("Softmax", "LogSoftmax")
_REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax")


@st.composite
def groups(draw: st.DrawFn) -> tuple[GraphBuilder, onnx_ir.Value]:
    """Element-wise work, with broadcasting and moves, and rows of the last axis in between."""
    g = GraphBuilder()
    shape = [draw(st.sampled_from((1, 2, 3, 5, 7))) for _ in range(draw(st.integers(1, 3)))]
    value = g.input("x", *shape)
    for step in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(("unary", "binary", "rows", "reduced", "transposed", "itself")))
        if kind == "unary":
            value = g.op(draw(st.sampled_from(_UNARY)), value)
        elif kind == "binary":
            own = [extent if draw(st.booleans()) else 1 for extent in shape]
            other = g.input(f"z{step}", *own[draw(st.integers(0, len(own))) :])
            pair = (value, other) if draw(st.booleans()) else (other, value)
            value = g.op(draw(st.sampled_from(_BINARY)), *pair)
        elif kind == "rows":
            value = g.op(draw(st.sampled_from(_ROWS)), value, axis=-1)
        elif kind == "reduced":
            value = g.op("Add", value, g.op(draw(st.sampled_from(_REDUCED)), value, g.ints(-1), keepdims=1))
        elif kind == "transposed":
            value, shape = g.op("Transpose", value), shape[::-1]
        else:
            value = g.op("Mul", value, value)
    return g, value


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(group=groups())
def test_a_random_group_gives_what_the_reference_gives(
    group: tuple[GraphBuilder, onnx_ir.Value], check: Checker
) -> None:
    function = function_of(*group)
    try:
        nest_of(function)
    except Refused:
        assume(False)
    check(function, TILES, tolerance=50.0)
