"""Ranges of sizes: how they are written, and which shapes follow from sizes of inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_core.errors import ModelError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.size_range import SizeRange, shape_within
from collage_core.ir.values.symbolic_sizes import (
    SIZES_METADATA,
    input_shapes,
    largest_at,
    say_sizes,
    shape_at,
    size_symbols,
    sizes_of,
)
from collage_core.ir.values.tensor_spec import ValueKind

Parse = Callable[[str], ir.Model]

ranges = st.lists(st.integers(0, 10**6), min_size=3, max_size=3).map(sorted).map(lambda s: SizeRange(s[0], s[2], s[1]))


@given(ranges)
def test_a_range_is_read_as_it_is_written(sizes: SizeRange) -> None:
    assert SizeRange.parse(str(sizes)) == sizes


@pytest.mark.parametrize("text", ["", "1..", "..3", "3..1", "1..9@10", "1...3", "1..9@", "-1..3", "1..9 ", "1.5..3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no range of sizes"):
        SizeRange.parse(text)


def test_a_shape_is_within_another() -> None:
    other = (1, SizeRange(2, 9, 4), 3)

    assert [size for size in range(12) if shape_within((1, size, 3), other)] == list(range(2, 10))
    assert shape_within(other, other)
    assert not shape_within((1, 4), other)
    assert not shape_within((2, 4, 3), other)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 9), st.integers(0, 4), st.integers(1, 4))
def test_extents_follow_from_sizes(height: int, width: int, kernel: int, pad: int, stride: int) -> None:
    """The expression of a convolution's extent, against the formula of ONNX."""
    dim = (ir.SymbolicDim("h") + (2 * pad - kernel)) // stride + 1

    found = shape_at(ir.Shape([2, dim, ir.SymbolicDim("w")]), {"h": height, "w": width})

    assert found == (2, (height + 2 * pad - kernel) // stride + 1, width)


def test_a_shape_with_other_symbols_does_not_follow() -> None:
    assert shape_at(ir.Shape(["n", "m"]), {"n": 3}) is None
    assert shape_at(ir.Shape([ir.SymbolicDim(None)]), {"n": 3}) is None


def test_the_largest_extents_are_those_at_the_ends() -> None:
    symbols = {"n": SizeRange(1, 9, 4), "m": SizeRange(2, 5, 2)}
    shape = ir.Shape([ir.SymbolicDim("n") * 2 + ir.SymbolicDim("m"), ir.SymbolicDim("n") * -1 + 20])

    found = largest_at(shape, symbols)

    every = [shape_at(shape, {"n": n, "m": m}) for n, m in itertools.product(range(1, 10), range(2, 6))]
    assert found == tuple(max(each[axis] for each in every if each is not None) for axis in range(2)) == (23, 19)


TEXT = """
g (float[n, 4] a, float[n, 4] b) => (float[n, 4] c, int64[2, k] d) { c = Add(a, b)  d = NonZero(c) }"""


def test_values_whose_shape_follows_are_sized(parsed: Parse) -> None:
    model = parsed(TEXT)
    for value in model.graph.inputs:
        say_sizes(value, (SizeRange(1, 30, 7), 4))
    graph = DataflowGraph(model)
    a, c, d = (graph.spec(value) for value in (model.graph.inputs[0], *model.graph.outputs))

    assert a.kind is c.kind is ValueKind.SIZED
    assert (c.shape, c.typical, c.bound, c.static_shape, c.nbytes) == ((None, 4), (7, 4), (30, 4), (7, 4), 112)
    assert c.has_known_shape
    assert d.kind is not ValueKind.SIZED
    assert not d.has_known_shape
    assert c.as_planned((9, 4)).static_shape == (9, 4)
    assert input_shapes(model) == {"a": (SizeRange(1, 30, 7), 4), "b": (SizeRange(1, 30, 7), 4)}
    assert graph.data_dependent_mask == 1 << graph.index_of(graph.names[1])


def test_typical_sizes_tell_measurements_apart(parsed: Parse) -> None:
    hashes = set()
    for typical in (7, 8):
        model = parsed(TEXT)
        for value in model.graph.inputs:
            say_sizes(value, (SizeRange(1, 30, typical), 4))
        hashes.add(DataflowGraph(model).signature(0))

    assert len(hashes) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[4, 4]",
        '["1..9", 5]',
        '["9..1", 4]',
        '["1..9@", 4]',
        "[[1], 4]",
        '{"n": 1}',
        '["1..9", 4, 4]',
        "9" * 9000,
    ],
)
def test_metadata_that_is_no_shape_is_refused(text: str, parsed: Parse) -> None:
    [value, *_] = parsed(TEXT).graph.inputs
    value.metadata_props[SIZES_METADATA] = text

    with pytest.raises(ModelError, match=r"its metadata 'collage\.sizes'"):
        sizes_of(value)


def test_a_symbol_has_one_range(parsed: Parse) -> None:
    a, b = parsed(TEXT).graph.inputs
    say_sizes(a, (SizeRange(1, 9, 5), 4))
    say_sizes(b, (SizeRange(1, 8, 5), 4))

    with pytest.raises(ModelError, match=r"its dimension 'n' has the sizes 1\.\.9 and 1\.\.8"):
        size_symbols([a, b])


def test_a_shape_that_some_sizes_do_not_have_is_not_sized(parsed: Parse) -> None:
    """Half of an odd number of rows: there is a shape at the typical size only."""
    model = parsed(
        "g (float[n, 4] a) => (float[h, 2, 4] y) { t = Constant <value = int64[3] {-1, 2, 4}> () y = Reshape(a, t) }"
    )
    say_sizes(model.graph.inputs[0], (SizeRange(1, 9, 4), 4))
    [y] = model.graph.outputs
    y.shape = ir.Shape([ir.SymbolicDim("n") / 2, 2, 4])

    assert DataflowGraph(model).spec(y).kind is not ValueKind.SIZED


@pytest.mark.parametrize("text", ["n", "past + 1", "n + 0", "past_len + 123456789", "2*n", "n - 1", "floor(n/2) + 1"])
def test_sums_are_what_onnx_ir_makes_of_them(text: str) -> None:
    for size in (0, 1, 7, 1 << 20):
        sizes = {"n": size, "past": size, "past_len": size}
        right = ir.SymbolicDim(text).evaluate(sizes)
        assert shape_at(ir.Shape([ir.SymbolicDim(text)]), sizes) == (None if right is None else (right,))


def test_a_sum_of_another_symbol_has_no_size() -> None:
    assert shape_at(ir.Shape([ir.SymbolicDim("m + 1")]), {"n": 3}) is None


@given(ranges, st.sampled_from([0.0, 0.125, 1.0]))
def test_sizes_near_the_typical_one_are_in_the_range(sizes: SizeRange, share: float) -> None:
    near = sizes.near(share)

    assert sizes.typical in near
    assert all(size in sizes and abs(size - sizes.typical) <= share * sizes.typical for size in (near[0], near[-1]))
