from __future__ import annotations

import numpy as np
import onnx
import pytest

from collage_core.patterns import Match, match
from collage_core.patterns.library.normalisation import layer_norm_pattern, rms_norm_pattern
from tests.core.patterns.library import formulas
from tests.core.patterns.library.written import Writer

SHAPE = (2, 3, 4, 5)
AXES = [(-1,), (-2, -1), (1,)]
EPSILON = 1e-5
HALF = onnx.TensorProto.FLOAT16

in_both_precisions = pytest.mark.parametrize("half", [False, True], ids=["float", "half"])


def constants(to: Writer, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A scale and a bias."""
    mine = {axis % len(SHAPE) for axis in axes}
    shape = [extent if axis in mine else 1 for axis, extent in enumerate(SHAPE)][min(mine) :]
    draw = np.random.default_rng(to.draw.randrange(99))
    return draw.normal(size=shape), draw.normal(size=shape)


def written_layer_norm(seed: int, axes: tuple[int, ...], *, half: bool = False) -> tuple[Writer, str]:
    """With a scale and a bias, a scale alone, or neither; in half precision wider from the deviation on."""
    to = Writer(seed)
    x = to.given("x", SHAPE, HALF if half else onnx.TensorProto.FLOAT)
    deviation = to.op("Sub", x, to.mean(x, axes))
    if half:
        again = deviation = to.op("Cast", deviation, to=onnx.TensorProto.FLOAT)
    else:
        again = to.op("Sub", x, to.mean(x, axes)) if to.draw.random() < 0.3 else deviation
    variance = to.mean(to.square(again), axes)
    output = to.over_root(deviation, to.either("Add", variance, to.constant(EPSILON)))
    if half:
        output = to.op("Cast", output, to=HALF)
    scale, bias = constants(to, axes)
    dtype = np.float16 if half else np.float32
    if seed % 3:
        output = to.either("Mul", output, to.constant(scale, dtype))
    if seed % 3 == 2:
        output = to.either("Add", output, to.constant(bias, dtype))
    return to, output


def written_rms_norm(seed: int, axes: tuple[int, ...], *, half: bool = False) -> tuple[Writer, str]:
    """With a scale or without; in half precision x is cast twice."""
    to = Writer(seed)
    x = to.given("x", SHAPE, HALF if half else onnx.TensorProto.FLOAT)
    wide, also = (to.op("Cast", x, to=onnx.TensorProto.FLOAT) if half else x for _ in range(2))
    squares = to.mean(to.square(wide), axes)
    output = to.over_root(also, to.either("Add", squares, to.constant(EPSILON)))
    if half:
        output = to.op("Cast", output, to=HALF)
    scale = constants(to, axes)[0]
    return to, to.either("Mul", output, to.constant(scale, np.float16 if half else np.float32)) if seed % 2 else output


@in_both_precisions
@pytest.mark.parametrize("seed", range(30))
def test_a_written_layer_norm_is_found_whole_and_computes_the_formula(seed: int, half: bool) -> None:
    axes = AXES[seed // 3 % 3]
    to, output = written_layer_norm(seed, axes, half=half)
    graph = to.graph(output)

    found = match(layer_norm_pattern(axes=axes), graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
    assert ("scale" in found.captures, "bias" in found.captures) == (seed % 3 > 0, seed % 3 == 2)
    result, values = formulas.computed(found)
    x, scale, bias = formulas.wide(values[found.captures["x"]]), found.constant("scale"), found.constant("bias")
    one, zero = np.ones(1), np.zeros(1)
    wanted = formulas.layer_norm(x, axes, one if scale is None else scale, zero if bias is None else bias, EPSILON)
    np.testing.assert_allclose(result, wanted, rtol=1e-2 if half else 1e-4, atol=1e-2 if half else 1e-5)


@in_both_precisions
@pytest.mark.parametrize("seed", range(30))
def test_a_written_rms_norm_is_found_whole_and_computes_the_formula(seed: int, half: bool) -> None:
    axes = AXES[seed // 3 % 3]
    to, output = written_rms_norm(seed, axes, half=half)
    graph = to.graph(output)

    found = match(rms_norm_pattern(axes=axes), graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
    result, values = formulas.computed(found)
    x, scale = formulas.wide(values[found.captures["x"]]), found.constant("scale")
    wanted = formulas.rms_norm(x, axes, np.ones(1) if scale is None else scale, EPSILON)
    np.testing.assert_allclose(result, wanted, rtol=1e-2 if half else 1e-4, atol=1e-2 if half else 1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_with_another_exponent_axis_or_epsilon_it_is_none(seed: int) -> None:
    """Scale and bias may be anything; all other constants are part of the formula."""
    to, output = written_layer_norm(seed, (-1,))
    for name, array in to.constants.items():
        if array.size > 1:
            continue
        changed = array - 1 if array.dtype == np.int64 else array * 1.01 + 0.02
        graph = to.graph(output, **{name: changed.astype(array.dtype)})

        assert not match(layer_norm_pattern(), graph, len(graph) - 1), name


def test_a_norm_over_other_axes_than_asked_for_is_none() -> None:
    for axes in AXES:
        to, output = written_layer_norm(2, axes)
        graph = to.graph(output)

        assert [bool(match(layer_norm_pattern(axes=each), graph, len(graph) - 1)) for each in AXES] == [
            each == axes for each in AXES
        ]


@pytest.mark.parametrize("shape", [(3, 4, 1), SHAPE, (4, 1)])
def test_what_is_added_behind_is_a_bias_only_along_the_normalised_axes(shape: tuple[int, ...]) -> None:
    """A table of positions, say, is none."""
    to, output = written_layer_norm(1, (-1,))
    graph = to.graph(to.op("Add", output, to.constant(np.ones(shape))))

    assert not match(layer_norm_pattern(), graph, len(graph) - 1)
    assert match(layer_norm_pattern(), graph, len(graph) - 2)


@in_both_precisions
def test_rms_norm_of_the_deviation_from_the_mean_is_layer_norm(half: bool) -> None:
    to, output = written_layer_norm(1, (-1,), half=half)
    graph = to.graph(output)

    assert not any(match(rms_norm_pattern(), graph, index) for index in range(len(graph)))


@pytest.mark.parametrize(("axis", "axes"), [(-1, (-1,)), (3, (-1,)), (2, (-2, -1)), (-2, (2, 3))])
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_operators_normalise_from_their_axis_on(op_type: str, axis: int, axes: tuple[int, ...]) -> None:
    builder = layer_norm_pattern if op_type == "LayerNormalization" else rms_norm_pattern
    to = Writer(0)
    scale = to.constant(np.ones(SHAPE[axis:]))
    graph = to.graph(to.op(op_type, to.given("x", SHAPE), scale, axis=axis))

    assert [bool(match(builder(axes=each), graph, 0)) for each in (axes, (1,))] == [True, False]
