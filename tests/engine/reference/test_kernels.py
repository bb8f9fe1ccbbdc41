"""Each vectorised kernel against ONNX's own implementation, or against the standard's definition."""

from __future__ import annotations

import itertools
import locale
import math
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from collage.reference import relative_error
from collage.reference.kernels import find_kernel
from collage.reference.operators import attribute_values

VERSION = 21

fast = settings(max_examples=40, deadline=None)


def make_node(op_type: str, inputs: list[Any], outputs: int, attributes: Any) -> onnx.NodeProto:
    names = ["" if value is None else f"i{index}" for index, value in enumerate(inputs)]
    return onnx.helper.make_node(op_type, names, [f"o{i}" for i in range(outputs)], **attributes)


def kernel(op_type: str, inputs: list[Any], outputs: int = 1, *, version: int = VERSION, **attributes: Any) -> Any:
    node = make_node(op_type, inputs, outputs, attributes)
    compute = find_kernel(op_type, outputs)
    assert compute is not None
    result = compute(inputs, attribute_values(node, version))
    return result if result is NotImplemented else list(result)


def oracle(
    op_type: str, inputs: list[Any], outputs: int = 1, *, version: int = VERSION, **attributes: Any
) -> list[Any]:
    graph = onnx.helper.make_graph(
        [make_node(op_type, inputs, outputs, attributes)],
        "one",
        [
            onnx.helper.make_tensor_value_info(
                f"i{index}", onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for index, value in enumerate(inputs)
            if value is not None
        ],
        [onnx.helper.make_tensor_value_info(f"o{i}", 1, None) for i in range(outputs)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    feeds = {f"i{index}": value for index, value in enumerate(inputs) if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(ReferenceEvaluator(model).run(None, feeds))


def assert_equal(actual: list[Any], expected: list[Any], limit: float = 2e-6) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert relative_error(mine, theirs) <= limit


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@st.composite
def sliding(draw: st.DrawFn, *, dilated: bool = True) -> tuple[list[int], dict[str, Any]]:
    """Spatial sizes, and attributes whose windows fit."""
    rank = draw(st.integers(1, 3))

    def per_axis(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kernel_shape = per_axis(1, 3)
    dilations = per_axis(1, 2) if dilated else [1] * rank
    reach = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    size = [r + extra for r, extra in zip(reach, per_axis(0, 4), strict=True)]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel_shape, "strides": per_axis(1, 3), "dilations": dilations,
    }  # fmt: skip
    if draw(st.booleans()):
        attributes["auto_pad"] = draw(st.sampled_from(["VALID", "SAME_UPPER", "SAME_LOWER"]))
    else:
        begin = [draw(st.integers(0, min(k - 1, 2))) for k in kernel_shape]
        end = [draw(st.integers(0, min(k - 1, 2))) for k in kernel_shape]
        attributes["pads"] = begin + end
    return size, attributes


@fast
@given(sliding(), st.sampled_from([(1, 3, 4), (2, 2, 1), (4, 1, 1), (3, 1, 2)]), st.integers(1, 2),
       st.booleans(), st.integers(0, 99))  # fmt: skip
def test_conv(spatial: Any, channels: tuple[int, int, int], batch: int, biased: bool, seed: int) -> None:
    size, attributes = spatial
    group, per_group, filters = channels
    x = floats(seed, batch, group * per_group, *size)
    w = floats(seed + 1, group * filters, per_group, *attributes["kernel_shape"])
    inputs = [x, w, floats(seed + 2, group * filters)] if biased else [x, w]

    assert_equal(
        kernel("Conv", inputs, group=group, **attributes),
        oracle("Conv", inputs, group=group, **attributes),
    )


def transposed(x: np.ndarray, w: np.ndarray, group: int, attributes: dict[str, Any]) -> np.ndarray:
    """ConvTranspose of one image by its definition: each input element adds its multiple of the kernel."""
    rank = x.ndim - 2
    strides, dilations = attributes["strides"], attributes["dilations"]
    size, kernel_shape = x.shape[2:], w.shape[2:]
    pads, more = attributes["pads"], attributes["output_padding"]
    out = [
        s * (n - 1) + m + (k - 1) * d + 1 - pads[a] - pads[a + rank]
        for a, (s, n, m, k, d) in enumerate(zip(strides, size, more, kernel_shape, dilations, strict=True))
    ]
    filters, per_group = w.shape[1], x.shape[1] // group
    y = np.zeros((1, filters * group, *out))
    for c, f in itertools.product(range(x.shape[1]), range(filters)):
        for at in itertools.product(*map(range, size)):
            for k in itertools.product(*map(range, kernel_shape)):
                to = [i * s + j * d - p for i, s, j, d, p in zip(at, strides, k, dilations, pads[:rank], strict=True)]
                if all(0 <= t < n for t, n in zip(to, out, strict=True)):
                    y[(0, c // per_group * filters + f, *to)] += x[(0, c, *at)] * w[(c, f, *k)]
    return y.astype(np.float32)


@fast
@given(sliding(), st.sampled_from([(1, 2, 2), (2, 1, 2), (2, 2, 1)]), st.integers(0, 99))
def test_conv_transpose(spatial: Any, channels: tuple[int, int, int], seed: int) -> None:
    size, attributes = spatial
    size = [min(n, 3) for n in size]
    group, per_group, filters = channels
    rank = len(size)
    attributes = {name: attributes[name] for name in ("strides", "dilations")}
    attributes["pads"] = [seed % 2] * rank + [0] * rank
    attributes["output_padding"] = [min(seed % 3, s - 1) for s in attributes["strides"]]
    kernel_shape = [2 + (seed + axis) % 2 for axis in range(rank)]
    x = floats(seed, 1, group * per_group, *size)
    w = floats(seed + 1, group * per_group, filters, *kernel_shape)

    result = kernel("ConvTranspose", [x, w], group=group, **attributes)

    assert_equal(result, [transposed(x, w, group, attributes)], 5e-6)
    if group == 1:
        assert_equal(result, oracle("ConvTranspose", [x, w], **attributes), 5e-6)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [None, [7, 8]])
def test_conv_transpose_to_an_output_shape(mode: str, shape: list[int] | None) -> None:
    inputs = [floats(0, 1, 2, 3, 4), floats(1, 2, 3, 3, 3), floats(2, 3)]
    attributes: dict[str, Any] = {"strides": [2, 2], "auto_pad": mode}
    if shape:
        attributes["output_shape"] = shape

    assert_equal(kernel("ConvTranspose", inputs, **attributes), oracle("ConvTranspose", inputs, **attributes))


@fast
@given(sliding(dilated=False), st.booleans(), st.booleans(), st.integers(0, 99),
       st.sampled_from(["AveragePool", "MaxPool", "LpPool"]))  # fmt: skip
def test_pooling(spatial: Any, ceil: bool, padded: bool, seed: int, op_type: str) -> None:
    size, attributes = spatial
    attributes.pop("dilations")
    if op_type == "MaxPool":
        # with strides of 1 ONNX's takes another path, which raises IndexError for auto_pad and drops windows of
        # some padded axes (kernel [2, 1, 1], pads [1, 0, 0, 0, 0, 0] on sizes [2, 1, 1])
        attributes["strides"] = [2] * len(size)
        if attributes.get("auto_pad") == "SAME_LOWER":
            attributes["auto_pad"] = "SAME_UPPER"  # the other is not the standard's, see the module
    strides = attributes["strides"]
    if attributes.get("auto_pad", "NOTSET").startswith("SAME") and any(
        k < s for k, s in zip(attributes["kernel_shape"], strides, strict=True)
    ):
        attributes["auto_pad"] = "VALID"  # ONNX's pads by a negative amount
    if "auto_pad" not in attributes:
        # beyond a stride of 2 the last window of ceil_mode may reach 2 further, where ONNX's moves all windows
        # ONNX's LpPool repeats the last element into an overhanging window ([1, 2, 3], kernel and stride 2: 4.243)
        attributes["ceil_mode"] = int(ceil and op_type != "LpPool")
        attributes["strides"] = [min(s, 2) for s in strides]
    if op_type == "AveragePool":
        attributes["count_include_pad"] = int(padded)
    x = floats(seed, 2, 2, *size)

    assert_equal(kernel(op_type, [x], **attributes), oracle(op_type, [x], **attributes))


def test_max_pool_visits_every_padded_window() -> None:
    x = np.array([1, -2], np.float32).reshape(1, 1, 2, 1, 1)

    result = kernel("MaxPool", [x], kernel_shape=[2, 1, 1], pads=[1, 0, 0, 0, 0, 0])

    assert result[0].ravel().tolist() == [1.0, 1.0]


def test_lp_pool_sees_only_elements_that_are_there() -> None:
    x = np.array([1, 2, 3], np.float32).reshape(1, 1, 3)

    result = kernel("LpPool", [x], kernel_shape=[2], strides=[2], ceil_mode=1)

    np.testing.assert_allclose(result[0].ravel(), [5**0.5, 3.0], rtol=1e-6)


def test_the_last_window_of_ceil_mode_does_not_move_the_others() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    attributes: dict[str, Any] = {"kernel_shape": [3], "strides": [3], "ceil_mode": 1}

    assert kernel("AveragePool", [x], **attributes)[0].tolist() == [[[1.0, 3.0]]]
    assert kernel("MaxPool", [x], **attributes)[0].tolist() == [[[2.0, 3.0]]]
    padded = kernel("AveragePool", [x], pads=[0, 1], count_include_pad=1, **attributes)
    assert padded[0].tolist() == [[[1.0, 1.5]]]


@fast
@given(sliding(), st.integers(0, 1), st.integers(0, 99))
def test_max_pool_indices(spatial: Any, order: int, seed: int) -> None:
    size, attributes = spatial
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        attributes["auto_pad"] = "VALID"
    attributes["strides"] = [2] * len(size)  # unequal to 1: ONNX's other MaxPool gives no indices
    attributes["storage_order"] = order if len(size) > 1 else 0
    x = floats(seed, 2, 2, *size)

    assert_equal(kernel("MaxPool", [x], 2, **attributes), oracle("MaxPool", [x], 2, **attributes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_and_gelu(dtype: Any) -> None:
    x = np.concatenate([np.linspace(-7, 7, 999), [0.0, 1e-30, np.inf, -np.inf]]).astype(dtype)

    exact = np.array([math.erf(each) for each in x]).astype(dtype)
    # not ONNX's own: in float64 too it gives float32's digits
    assert_equal(kernel("Erf", [x]), [exact], float(np.finfo(dtype).eps) * 2)
    finite = x[np.isfinite(x)]
    assert_equal(kernel("Gelu", [finite]), oracle("Gelu", [finite]), 1e-6)
    assert np.isnan(kernel("Erf", [np.full(1, np.nan, dtype)])[0]).all()

    bent = [0.5 * each * (1 + math.tanh(math.sqrt(2 / math.pi) * (each + 0.044715 * each**3))) for each in finite]
    assert_equal(kernel("Gelu", [finite], approximate="tanh"), [np.array(bent, dtype)], 1e-6)
    assert kernel("Gelu", [x], approximate="of a later version") is NotImplemented


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl", [(2, 3), (3, 4), (4, 2)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("ii->i", [(3, 3)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [floats(index, *shape) for index, shape in enumerate(shapes)]

    assert_equal(kernel("Einsum", inputs, equation=equation), oracle("Einsum", inputs, equation=equation))


@pytest.mark.parametrize(
    ("first", "second"),
    [((3,), (3,)), ((2, 3), (3,)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (2, 3, 5)), ((3,), (2, 3, 4))],
)
def test_matmul(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    inputs = [floats(0, *first[::-1]).T, floats(1, *second)]

    assert_equal(kernel("MatMul", inputs), oracle("MatMul", inputs))


@pytest.mark.parametrize("zero_points", [[], [np.uint8(3)], [np.uint8(3), np.int8(-2)]])
def test_matmul_integer(zero_points: list[Any]) -> None:
    random = np.random.default_rng(0)
    a = random.integers(0, 255, (4, 6)).astype(np.uint8)
    b = random.integers(-128, 127, (6, 5)).astype(np.int8)
    inputs = [a, b, *[np.asarray(each) for each in zero_points]]

    assert_equal(kernel("MatMulInteger", inputs), oracle("MatMulInteger", inputs))


@fast
@given(st.integers(1, 3), st.integers(0, 2), st.integers(0, 99))
def test_gather_and_scatter_elements(rank: int, axis: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    axis = axis % rank - (rank if seed % 2 else 0)
    data = floats(seed, *random.integers(1, 5, rank))
    shape = list(data.shape)
    shape[axis] = int(random.integers(1, 5))
    indices = random.integers(-data.shape[axis], data.shape[axis], shape)
    updates = floats(seed + 1, *shape)

    gathered = np.take_along_axis(data, indices % data.shape[axis], axis)
    assert_equal(kernel("GatherElements", [data, indices], axis=axis), [gathered])
    for reduction in ("none", "add", "mul", "min", "max"):
        inputs = [data, indices, updates]
        assert_equal(
            kernel("ScatterElements", inputs, axis=axis, reduction=reduction),
            oracle("ScatterElements", inputs, axis=axis, reduction=reduction),
        )


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 130, 127), 1), ((3, 20000), 0), ((2, 3, 16384), -2)])
def test_positions_of_the_first_extreme(shape: tuple[int, ...], axis: int, dtype: Any, op_type: str) -> None:
    x = np.random.default_rng(0).integers(0, 4, shape).astype(dtype)  # most columns have ties
    if dtype == np.float32:
        x[x == 3], x[x == 0] = np.inf, -np.inf

    for keepdims in (0, 1):
        found = kernel(op_type, [x], axis=axis, keepdims=keepdims)

        np.testing.assert_array_equal(found[0], oracle(op_type, [x], axis=axis, keepdims=keepdims)[0], strict=True)


def test_positions_where_numpy_decides() -> None:
    with_nan = floats(0, 3, 20000)
    with_nan[1, 7] = np.nan

    assert kernel("ArgMax", [with_nan], axis=0) is NotImplemented
    assert kernel("ArgMax", [floats(0, 3, 20000)], axis=0, select_last_index=1) is NotImplemented
    assert kernel("ArgMax", [floats(0, 3, 20)], axis=0) is NotImplemented
    assert kernel("ArgMax", [floats(0, 3, 20000)], axis=2) is NotImplemented
    assert kernel("ArgMax", [floats(0, 0, 20000)], axis=0) is NotImplemented


def test_negative_pads_crop() -> None:
    x = floats(0, 3, 4)

    result = kernel("Pad", [x, np.array([-1, 2]), np.float32(7), np.array([1])])[0]

    np.testing.assert_array_equal(result[:, :3], x[:, 1:])
    np.testing.assert_array_equal(result[:, 3:], np.full((3, 2), 7, np.float32))
    assert kernel("Pad", [x, np.array([0, 0, 1, 1])]) is NotImplemented


@fast
@given(st.integers(0, 9999), st.integers(1, 30), st.integers(0, 1), st.integers(0, 12))
def test_non_max_suppression(seed: int, count: int, centred: int, limit: int) -> None:
    random = np.random.default_rng(seed)
    boxes = random.random((2, count, 4)).astype(np.float32)
    scores = random.integers(0, 9, (2, 2, count)).astype(np.float32) / 8  # with ties
    inputs = [boxes, scores, np.array([limit]), np.array([0.2], np.float32), np.array([0.3], np.float32)]

    for given_inputs in (inputs, inputs[:4]):
        assert_equal(
            kernel("NonMaxSuppression", given_inputs, center_point_box=centred),
            [each.reshape(-1, 3) for each in oracle("NonMaxSuppression", given_inputs, center_point_box=centred)],
        )


@fast
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=3),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.integers(0, 1),
    st.integers(0, 99),
)
def test_grid_sample(size: list[int], mode: str, padding: str, align: int, seed: int) -> None:
    x = floats(seed, 2, 2, *size)
    grid = floats(seed + 1, 2, *[2] * len(size), len(size))
    attributes: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": align}

    assert_equal(
        kernel("GridSample", [x, grid], **attributes),
        oracle("GridSample", [x, grid], **attributes),
        1e-5,
    )


@pytest.mark.parametrize("size", [(5,), (4, 5), (2, 4, 5)])
def test_global_max_pool_reduces_all_spatial_axes(size: tuple[int, ...]) -> None:
    x = floats(0, 2, 3, *size)

    assert_equal(kernel("GlobalMaxPool", [x]), [x.max(axis=tuple(range(2, x.ndim)), keepdims=True)], 0)


@fast
@given(sliding(), st.sampled_from([(1, 3, 4), (2, 2, 1), (3, 1, 2)]), st.integers(0, 99), st.booleans())
def test_convolutions_of_integers(spatial: Any, channels: tuple[int, int, int], seed: int, shifted: bool) -> None:
    size, attributes = spatial
    group, per_group, filters = channels
    random = np.random.default_rng(seed)
    x = random.integers(0, 255, (2, group * per_group, *size)).astype(np.uint8)
    w = random.integers(-128, 127, (group * filters, per_group, *attributes["kernel_shape"])).astype(np.int8)
    attributes["group"] = group
    zeros = [np.array(7, np.uint8), np.array(-3, np.int8)] if shifted else []

    assert_equal(
        kernel("ConvInteger", [x, w, *zeros], **attributes), oracle("ConvInteger", [x, w, *zeros], **attributes), 0
    )
    if len(size) != 2:
        return  # ONNX's takes a scale per filter as one of images
    scales = random.uniform(0.01, 0.1, len(w)).astype(np.float32)
    zeros = [np.array(7, np.uint8), random.integers(-3, 3, len(w)).astype(np.int8), np.array(100, np.uint8)]
    inputs = [x, np.array(0.5, np.float32), zeros[0], w, scales, zeros[1], np.array(9, np.float32), zeros[2]]
    inputs.append(random.integers(-999, 999, len(w)).astype(np.int32))
    assert_equal(kernel("QLinearConv", inputs, **attributes), oracle("QLinearConv", inputs, **attributes), 0)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("past", [True, False])
def test_causal_conv_with_state(activation: str, past: bool) -> None:
    inputs = [floats(0, 2, 3, 7), floats(1, 3, 1, 4), floats(2, 3), floats(3, 2, 3, 3) if past else None]

    found = kernel("CausalConvWithState", inputs, 2, version=27, activation=activation)

    assert_equal(found, oracle("CausalConvWithState", inputs, 2, version=27, activation=activation))


def test_global_lp_pool() -> None:
    x = floats(0, 2, 3, 4, 5)

    expected = np.sqrt((x.astype(np.float64) ** 2).sum(axis=(2, 3), keepdims=True))
    assert_equal(kernel("GlobalLpPool", [x]), [expected.astype(np.float32)])


@pytest.mark.parametrize(("batch", "size"), [(1, 5), (3, 4), (2, 1), (1, 9)])
def test_lrn_by_its_definition(batch: int, size: int) -> None:
    x = floats(0, batch, 6, 2, 3)

    expected = np.empty_like(x)
    for channel in range(6):
        first, last = max(0, channel - math.floor((size - 1) / 2)), min(5, channel + math.ceil((size - 1) / 2))
        squares = (x[:, first : last + 1].astype(np.float64) ** 2).sum(axis=1)
        expected[:, channel] = x[:, channel] / (2.0 + 0.5 / size * squares) ** 0.7
    assert_equal(kernel("LRN", [x], size=size, alpha=0.5, beta=0.7, bias=2.0), [expected], 1e-6)


@pytest.mark.guards(
    "a StringNormalizer with a locale, accents or stop words inside others, where ONNX's evaluator errs; "
    "SequenceMap over outer values",
    "the reference follows the standard",
    area="input",
)
@pytest.mark.parametrize(
    ("attributes", "words", "kept"),
    [
        ({"stopwords": ["the"]}, ["The", "thé", "", "the end"], ["thé", "", "the end"]),
        ({"stopwords": ["the"], "is_case_sensitive": 1}, ["The", "the"], ["The"]),
        ({"case_change_action": "UPPER"}, ["ab", "é"], ["AB", "É"]),
        ({"case_change_action": "LOWER", "stopwords": ["A"], "is_case_sensitive": 1}, ["A", "a", "B"], ["a", "b"]),
        ({"stopwords": ["a", "b"]}, ["a", "b"], [""]),
    ],
)
@pytest.mark.parametrize("rank", [1, 2])
def test_only_whole_stop_words_are_dropped_and_accents_and_locale_stay(
    attributes: dict[str, Any], words: list[str], kept: list[str], rank: int
) -> None:
    before = locale.setlocale(locale.LC_ALL)
    given = np.array(words, object).reshape((1,) * (rank - 1) + (-1,))

    [found] = kernel("StringNormalizer", [given], locale="de_DE", **attributes)

    assert found.ndim == rank
    assert found.reshape(-1).tolist() == kept
    assert locale.setlocale(locale.LC_ALL) == before
