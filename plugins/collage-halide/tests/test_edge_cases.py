"""Groups at the edges: narrow types, one element or none, several readers of one value, numbers that trap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage_core.contract import Target, Unsupported
from collage_halide.pipeline import group_of
from collage_halide.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

RNG = np.random.default_rng(0)
EXACT = Target(toolchain="halide", fingerprint="t")


def roles(what: WrittenFunction) -> list[str]:
    """Return what the stages of a group are for."""
    return [stage.role for stage in group_of(what.function, vector_bytes=32, threads=2).stages]


@pytest.mark.parametrize(
    "body",
    [
        "a = Sigmoid(x) y = Transpose<perm=[1,0]>(a)",
        "a = Exp(x) b = Mul(a, a) y = Add(b, a)",
        "a = Tanh(x) b = Transpose<perm=[1,0]>(a) y = Transpose<perm=[1,0]>(b)",
        "a = Softmax<axis=-1>(x) b = Relu(a) y = Transpose<perm=[1,0]>(b)",
    ],
    ids=["transposed", "several readers", "twice", "softmax"],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_written_as_they_are(dtype: str, body: str, kernels: HostKernels) -> None:
    """Stages between operators may be float32; outputs may not, for there is no room."""
    what = written(f"g ({dtype}[30,30] x) => ({dtype}[30,30] y) {{ {body} }}")
    [spec] = what.function.inputs
    x = RNG.standard_normal((30, 30)).astype(spec.numpy_dtype)

    kernels.check(what, {"x": x}, tolerance=2e-2 if dtype == "bfloat16" else 2e-3)


@pytest.mark.parametrize(("dtype", "stash"), [("double", 1), ("float", 1), ("float16", 1)])
def test_further_outputs_of_a_norm_have_their_own_type(dtype: str, stash: int, kernels: HostKernels) -> None:
    what = written(
        f"g ({dtype}[6,40] x, {dtype}[40] s) => ({dtype}[6,40] y, float[6,1] mean, float[6,1] inverse) {{"
        f" y, mean, inverse = LayerNormalization<axis=-1, stash_type={stash}>(x, s) }}"
    )
    x, s = (RNG.standard_normal(shape).astype(spec.numpy_dtype) for shape, spec in
            zip(((6, 40), (40,)), what.function.inputs, strict=True))  # fmt: skip

    kernels.check(what, {"x": x, "s": s}, tolerance=5e-3 if dtype == "float16" else 1e-4)


def test_one_index_counts_from_the_ends_of_several_values(kernels: HostKernels) -> None:
    what = written(
        "g (float[6] x, int64[3] i) => (float[3] y) <int64[1] zero = {0}, int64[1] four = {4}> {"
        " r = Relu(x) a = Slice(r, zero, four, zero) p = Gather(a, i) q = Gather(r, i) y = Sub(p, q) }"
    )
    kernels.check(what, {"x": np.arange(1, 7, dtype=np.float32), "i": np.array([-1, -2, 0])})


@pytest.mark.parametrize(
    ("constants", "part", "extent"),
    [
        ("int64[1] at = {13}", "Gather<axis=2>(d, at)", 1),
        ("int64[1] from = {13}, int64[1] to = {16}, int64[1] axis = {2}", "Slice(d, from, to, axis)", 3),
    ],
    ids=["one element", "the end"],
)
def test_what_is_read_in_part_is_computed_within_its_extents(
    constants: str, part: str, extent: int, kernels: HostKernels
) -> None:
    """Vectors round up the part of `m` that is read, where there is nothing left of `x`."""
    what = written(
        f"g (float[1,8,16,7] x) => (float[1,8,{extent},7] y) <int64[2] over = {{1, 3}}, {constants}> {{"
        f" m = ReduceMax(x, over) d = Sub(x, m) y = {part} }}"
    )
    kernels.check(what, {"x": RNG.standard_normal((1, 8, 16, 7)).astype(np.float32)})


@pytest.mark.parametrize("other", ['mode="nearest"', "align_corners=1", 'padding_mode="border"'])
def test_one_grid_samples_in_several_ways(other: str, kernels: HostKernels) -> None:
    what = written(
        "g (float[1,2,7,9] x, float[1,4,5,2] grid) => (float[1,2,4,5] y) {"
        f' r = Abs(x) a = GridSample<mode="linear">(r, grid) b = GridSample<{other}>(r, grid) y = Sub(a, b) }}'
    )
    grid = RNG.uniform(-1.2, 1.2, (1, 4, 5, 2)).astype(np.float32)
    kernels.check(what, {"x": RNG.standard_normal((1, 2, 7, 9)).astype(np.float32), "grid": grid})


@pytest.mark.parametrize(
    ("inputs", "outputs", "body"),
    [
        ("float[1,16,1,1] x, float[1,16,1,1] w", "float[1,1,1,1] y", "a = Relu(x) y = Conv(a, w)"),
        ("float[1,1,2,2] x", "float[1,1,1,1] y", "y = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[3,3]>(x)"),
        ("float[30,30] x", "float r", "a = Exp(x) b = Transpose<perm=[1,0]>(a) r = ReduceMax<keepdims=0>(b)"),
        ("float[1,1,5,5] x, float[1,1,1,2] g", "float[1,1,1,1] y", "y = GridSample(x, g)"),
    ],
    ids=["scores", "pooling", "maximum", "point"],
)
def test_results_of_one_element(inputs: str, outputs: str, body: str, kernels: HostKernels) -> None:
    what = written(f"g ({inputs}) => ({outputs}) {{ {body} }}")
    feeds = {spec.name: RNG.uniform(-1, 1, spec.static_shape).astype(np.float32) for spec in what.function.inputs}

    kernels.check(what, feeds)


@pytest.mark.parametrize(("shape", "to"), [([0, 3], [0]), ([2, 0], [0]), ([0, 3], [3, 0, 2]), ([3, 0], [0, 7])])
def test_what_is_empty_has_any_shape_that_is(shape: list[int], to: list[int], kernels: HostKernels) -> None:
    what = written(
        f"g (float{shape} x) => (float{to} y) {{ a = Relu(x) y = Reshape<allowzero=1>(a, to) }}",
        {"to": np.array(to)},
    )
    kernels.check(what, {"x": np.zeros(shape, np.float32)})


def test_a_scale_per_group_as_before_opset_21(kernels: HostKernels) -> None:
    what = written(
        "g (float[2,6,5] x, float[3] s, float[3] b) => (float[2,6,5] y) {"
        " y = GroupNormalization<num_groups=3>(x, s, b) }",
        opset=18,
    )
    feeds = {spec.name: RNG.standard_normal(spec.static_shape).astype(np.float32) for spec in what.function.inputs}
    kernels.check(what, feeds)


def test_the_deviation_of_small_numbers_counts(kernels: HostKernels) -> None:
    """ONNX adds the epsilon of MeanVarianceNormalization to the deviation, not to the variance."""
    what = written("g (float[1,3,4,4] x) => (float[1,3,4,4] y) { y = MeanVarianceNormalization(x) }")

    kernels.check(what, {"x": (1e-5 * RNG.standard_normal((1, 3, 4, 4))).astype(np.float32)}, tolerance=1e-3)


def test_the_logarithm_of_a_sum_with_infinity_is_infinite(kernels: HostKernels) -> None:
    what = written("g (float[3,40] x) => (float[3,1] y) <int64[1] axes = {1}> { y = ReduceLogSumExp(x, axes) }")
    x = RNG.standard_normal((3, 40)).astype(np.float32)
    x[0, 7], x[1, 5] = np.inf, -np.inf

    kernels.check(what, {"x": x})


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("operator", "least"), [("Div", None), ("Mod", 0), ("Mod<fmod=1>", 0)])
def test_the_smallest_number_divided_by_minus_one_ends_no_process(
    operator: str, least: int | None, dtype: str, kernels: HostKernels
) -> None:
    what = written(f"g ({dtype}[70] x, {dtype}[70] by) => ({dtype}[70] y) {{ y = {operator}(x, by) }}")
    [artifact, *_] = kernels.lowered(what)
    smallest = np.iinfo(dtype).min
    x: np.ndarray[Any, Any] = np.full(70, smallest, dtype)
    x[1::2] = 7
    [y] = kernels.run(what, artifact, {"x": x, "by": np.full(70, -1, dtype)})

    assert set(y[::2].tolist()) == {smallest if least is None else least}
    assert set(y[1::2].tolist()) == {-7 if least is None else 0}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("body", ["Add(x, one)", "Sub(x, least)", "Mul(x, x)", "Neg(x)"])
def test_integers_wrap_around(body: str, dtype: str, kernels: HostKernels) -> None:
    """Also where the result is compared with what it was: `x < x + 1` is false of the largest number."""
    limits = np.iinfo(dtype)
    what = written(
        f"g ({dtype}[70] x, {dtype} one, {dtype} least) => ({dtype}[70] y, bool[70] less)"
        f" {{ y = {body} less = Less(x, y) }}"
    )
    x: np.ndarray[Any, Any] = np.full(70, limits.max, dtype)
    x[::3], x[1::3] = limits.min, 5
    kernels.check(what, {"x": x, "one": np.array(1, dtype), "least": np.array(limits.min, dtype)})


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("call", ["ReduceSum<keepdims=0>(x, at)", "ReduceProd<keepdims=0>(x, at)"])
def test_sums_and_products_of_integers_wrap_around(call: str, dtype: str, kernels: HostKernels) -> None:
    what = written(f"g ({dtype}[3,70] x) => ({dtype}[3] y) <int64[1] at = {{1}}> {{ y = {call} }}")
    kernels.check(what, {"x": np.full((3, 70), np.iinfo(dtype).max, dtype)})


def test_a_part_of_an_image_that_padding_repeats_is_read_within_its_channel(kernels: HostKernels) -> None:
    """All rows that are read are above the image, so all of them are its first."""
    constants = (
        "int64[1] three = {3}, int64[1] end = {9}, int64[1] rows = {2}, int64[8] pads = {0, 0, 4, 0, 0, 0, 0, 0},"
        " int64[2] from = {0, 0}, int64[2] to = {1, 2}, int64[2] axes = {1, 2}"
    )
    what = written(
        f"g (float[1,8,2,2] x) => (float[1,1,2,4] y) <{constants}> {{"
        ' d = DepthToSpace<blocksize=2,mode="CRD">(x) s = Slice(d, three, end, rows)'
        ' p = Pad<mode="edge">(s, pads) y = Slice(p, from, to, axes) }'
    )
    kernels.check(what, {"x": np.arange(32, dtype=np.float32).reshape(1, 8, 2, 2)})


def test_infinities_at_the_edge_do_not_reach_points_outside(kernels: HostKernels) -> None:
    what = written("g (float[1,2,5,6] x, float[1,3,4,2] grid) => (float[1,2,3,4] y) { y = GridSample(x, grid) }")
    x = RNG.standard_normal((1, 2, 5, 6)).astype(np.float32)
    x[0, 0, 0, 0], x[0, 1, 4, 5] = np.inf, -np.inf
    kernels.check(what, {"x": x, "grid": np.full((1, 3, 4, 2), -3, np.float32)})


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_no_point_is_read_outside_the_input(mode: str, padding: str, kernels: HostKernels) -> None:
    """Behind a convolution, too, where LLVM takes for granted that there is no such number."""
    what = written(
        "g (float[1,2,5,6] x, float[1,1,12,2] grid) => (float[1,2,1,12] y) {"
        " moved = Transpose<perm=[0,3,1,2]>(grid) mixed = Conv(moved, w) again = Transpose<perm=[0,2,3,1]>(mixed)"
        f' y = GridSample<mode="{mode}",padding_mode="{padding}">(x, again) }}',
        {"w": np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)},
    )
    x = RNG.standard_normal((1, 2, 5, 6)).astype(np.float32)
    points = np.zeros((1, 1, 12, 2), np.float32)
    for artifact in kernels.lowered(what, variants=9):
        [usual] = kernels.run(what, artifact, {"x": x, "grid": points})
        for strange in (np.nan, np.inf, -np.inf, 3e38, -3e38):
            grid = points.copy()
            grid[..., ::2, 0], grid[..., ::3, 1] = strange, strange
            [y] = kernels.run(what, artifact, {"x": x, "grid": grid})
            np.testing.assert_array_equal(y[..., [1, 5, 7, 11]], usual[..., [1, 5, 7, 11]], err_msg=f"beside {strange}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the reference's
def test_powers_of_infinite_numbers(kernels: HostKernels) -> None:
    what = written("g (float[7] x, float[7] p) => (float[7] y) { y = Pow(x, p) }")
    x = np.array([-np.inf, -np.inf, -1, -1, np.inf, -np.inf, -2], np.float32)
    p = np.array([0.5, -0.5, np.inf, -np.inf, -1, 3, 0.5], np.float32)
    kernels.check(what, {"x": x, "p": p})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the reference's
@pytest.mark.parametrize("power", [0.5, -0.5, -1.0, 3.0])
def test_powers_of_infinite_numbers_and_zeros_by_a_constant(power: float, kernels: HostKernels) -> None:
    what = written(f"g (float[16] x) => (float[16] y) <float p = {{{power}}}> {{ y = Pow(x, p) }}")
    x = np.resize(np.array([-np.inf, np.inf, -0.0, 0.0, -1, 2], np.float32), 16)
    [y] = kernels.run(what, kernels.lowered(what)[0], {"x": x})
    right = np.power(x, np.full_like(x, power))  # by C's function; NumPy takes roots where the exponent is a scalar
    np.testing.assert_array_equal(y, right)
    np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(right[y == 0]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the reference's
def test_powers_of_negative_zero(kernels: HostKernels) -> None:
    what = written("g (float[16] x, float[16] p) => (float[16] y) { y = Pow(x, p) }")
    x, p = np.full(16, -0.0, np.float32), np.resize(np.array([-1, 3, -2, 2, 0.5, -0.5, -3, 0], np.float32), 16)
    [y] = kernels.run(what, kernels.lowered(what)[0], {"x": x, "p": p})
    right = np.power(x, p)
    np.testing.assert_array_equal(y, right)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(right))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the reference's
@pytest.mark.parametrize("dtype", ["float", "double", "float16", "bfloat16"])
@pytest.mark.parametrize("operator", ["LessOrEqual", "GreaterOrEqual", "Less", "Greater", "Equal"])
def test_no_comparison_holds_of_nan(operator: str, dtype: str, kernels: HostKernels) -> None:
    what = written(f"g ({dtype}[33] a, {dtype}[33] b) => (bool[33] y) {{ y = {operator}(a, b) }}")
    kind = what.function.inputs[0].numpy_dtype
    a = np.resize(np.array([np.nan, 1, np.nan, 2, 1], np.float32), 33).astype(kind)
    b = np.resize(np.array([1, np.nan, np.nan, 2, 2], np.float32), 33).astype(kind)
    for artifact in kernels.lowered(what, variants=9):
        [y] = kernels.run(what, artifact, {"a": a, "b": b})
        np.testing.assert_array_equal(y, what.expected({"a": a, "b": b})[0])
        assert not y[0]


def test_the_negative_of_zero_is_negative(kernels: HostKernels) -> None:
    what = written("g (float[16] x) => (float[16] y) { a = Neg(x) y = Reciprocal(a) }")
    [y] = kernels.run(what, kernels.lowered(what)[0], {"x": np.zeros(16, np.float32)})
    np.testing.assert_array_equal(y, np.full(16, -np.inf, np.float32))


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001])
def test_nan_of_any_bits_stays_nan_in_bfloat16(bits: int, kernels: HostKernels) -> None:
    what = written("g (float[16] x) => (bfloat16[16] y) { y = Cast<to=16>(x) }")
    x = np.full(16, bits, np.uint32).view(np.float32)
    [y] = kernels.run(what, kernels.lowered(what)[0], {"x": x})
    assert np.isnan(y.astype(np.float32)).all()


@pytest.mark.parametrize(("dtype", "largest"), [("float", 89.0), ("double", 710.0)])
def test_the_hyperbolic_cosine_is_finite_up_to_the_end(dtype: str, largest: float, kernels: HostKernels) -> None:
    what = written(f"g ({dtype}[33] x) => ({dtype}[33] y) {{ y = Cosh(x) }}")
    kind = what.function.inputs[0].numpy_dtype
    x = np.linspace(-largest, largest, 33).astype(kind)
    [y] = kernels.run(what, kernels.lowered(what)[0], {"x": x})
    np.testing.assert_allclose(y, np.cosh(x.astype(np.longdouble)).astype(kind), rtol=1e-6)


def test_division_by_a_constant_zero_is_refused(kernels: HostKernels) -> None:
    """Halide does not compile it."""
    what = written("g (float[16] x) => (float[16] y) <float zero = {0}> { y = Div(x, zero) }")
    answer = plugin.collage_lower(EXACT, what.function, kernels.build())
    assert isinstance(answer, Unsupported)
    assert answer.reason == "Div by a constant zero"


def test_a_concat_of_many_inputs_inside_large_windows_is_stored_first(kernels: HostKernels) -> None:
    """Each element is selected among all inputs; in each of 121 places Halide would compile that for minutes."""
    inputs = ", ".join(f"float[1,1,12,12] x{number}" for number in range(40))
    names = ", ".join(f"x{number}" for number in range(40))
    what = written(
        f"g ({inputs}) => (float[1,40,2,2] y) {{ c = Concat<axis=1>({names}) y = MaxPool<kernel_shape=[11,11]>(c) }}"
    )
    values = {f"x{number}": RNG.standard_normal((1, 1, 12, 12)).astype(np.float32) for number in range(40)}
    assert "kept" in roles(what)
    kernels.check(what, values)


@pytest.mark.parametrize("reshaped", [False, True])
def test_nested_concats_inside_large_windows_are_stored_first(reshaped: bool, kernels: HostKernels) -> None:
    steps = " ".join(
        f"d{number} = Concat<axis=1>(c{number}, c{number}) e{number} = Flatten(d{number}) "
        f"c{number + 1} = Reshape(e{number}, s{number})"
        if reshaped
        else f"c{number + 1} = Concat<axis=1>(c{number}, c{number})"
        for number in range(7)
    )
    shapes = ", ".join(f"int64[4] s{number} = {{1, {2 << number}, 12, 12}}" for number in range(7))
    body = f"c0 = Identity(x) {steps} y = MaxPool<kernel_shape=[11,11]>(c7)"
    what = written(f"g (float[1,1,12,12] x) => (float[1,128,2,2] y) <{shapes}> {{ {body} }}")
    assert "kept" in roles(what)
    kernels.check(what, {"x": RNG.standard_normal((1, 1, 12, 12)).astype(np.float32)})


@pytest.mark.parametrize("by", [2**40, -(2**40), 3, -3])
@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_far_away(upper: int, by: int, kernels: HostKernels) -> None:
    what = written(f"g (float[3,5] x) => (float[3,5] y) <int64 k = {{{by}}}> {{ y = Trilu<upper={upper}>(x, k) }}")
    kernels.check(what, {"x": RNG.standard_normal((3, 5)).astype(np.float32)})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the reference's
@pytest.mark.parametrize("operator", ["Sigmoid", "Exp", "Log", "Softplus", "Tanh", "Gelu"])
def test_infinities_come_out_of_finite_numbers_behind_a_convolution(operator: str, kernels: HostKernels) -> None:
    """Products are fused with additions there, for which LLVM takes for granted that no number is infinite."""
    what = written(
        f"g (float[1,1,4,8] x) => (float[1,1,4,8] y) {{ c = Conv(x, w) y = {operator}(c) }}",
        {"w": np.ones((1, 1, 1, 1), np.float32)},
    )
    x = RNG.uniform(-90, 90, 32)
    x[:9] = 0, -2e9, -1e30, -3e38, 2e9, 1e30, 3e38, 200, -200
    [y] = kernels.run(what, kernels.lowered(what)[0], {"x": x.astype(np.float32).reshape(1, 1, 4, 8)})
    [right] = what.expected({"x": x.astype(np.float32).reshape(1, 1, 4, 8)})

    np.testing.assert_allclose(y, np.asarray(right), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ArgMax", "Softmax"])
def test_what_begins_with_an_infinity_is_right_behind_a_convolution(operator: str, kernels: HostKernels) -> None:
    """Where products are fused, LLVM takes for granted that there is none."""
    end = "int64[1] at = {1}" if operator.startswith("Reduce") else "int64[1] unused = {1}"
    call = f"{operator}(c, at)" if operator.startswith("Reduce") else f"{operator}<axis=1>(c)"
    shape, kind = ("5" if operator == "Softmax" else "1"), "int64" if operator == "ArgMax" else "float"
    what = written(
        f"g (float[1,5,9,40] x) => ({kind}[1,{shape},9,40] y) <{end}> {{"
        f" n = Neg(x) c = Conv<group=5,pads=[1,1,1,1],kernel_shape=[3,3]>(n, w) y = {call} }}",
        {"w": RNG.standard_normal((5, 1, 3, 3)).astype(np.float32)},
    )
    kernels.check(what, {"x": RNG.standard_normal((1, 5, 9, 40)).astype(np.float32)})


@pytest.mark.parametrize("body", ["y = Clip(x, low, high)", "a = Clip(x, , high) y = Clip(a, low)", "y = Erf(x)"])
def test_what_is_no_number_stays_so(body: str, kernels: HostKernels) -> None:
    what = written(f"g (float[37] x) => (float[37] y) <float low = {{-0.5}}, float high = {{0.25}}> {{ {body} }}")
    x = RNG.standard_normal(37).astype(np.float32)
    x[3], x[4], x[5] = np.nan, np.inf, -np.inf

    kernels.check(what, {"x": x})


@pytest.mark.parametrize("dtype", ["float", "int32"])
@pytest.mark.parametrize("axis", [0, 1], ids=["far apart", "side by side"])
@pytest.mark.parametrize("last", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_places_of_equal_and_strange_numbers(
    operator: str, last: int, axis: int, dtype: str, kernels: HostKernels
) -> None:
    """Rows of ties, of nothing but the number that a search begins with, and with NaN at one place or two."""
    attributes = f"axis={axis},select_last_index={last},keepdims=0"
    extents = ("67", "14") if axis == 0 else ("14", "67")
    what = written(f"g ({dtype}[{','.join(extents)}] x) => (int64[14] y) {{ y = {operator}<{attributes}>(x) }}")
    [spec] = what.function.inputs
    rows = RNG.integers(-2, 3, (14, 67)).astype(spec.numpy_dtype)
    if dtype == "float":
        rows[0], rows[1], rows[2] = -np.inf, np.inf, np.nan
        rows[3, 40], rows[4, [3, 50]], rows[5, [0, 66]], rows[6, :40] = np.nan, np.nan, np.nan, -np.inf
    else:
        rows[0], rows[1] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    kernels.check(what, {"x": np.ascontiguousarray(rows.T if axis == 0 else rows)})
