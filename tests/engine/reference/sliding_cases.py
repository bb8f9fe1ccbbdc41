"""Nodes whose windows may be far larger than what they slide over, and their results by the standard's definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import assume
from hypothesis import strategies as st

from tests.engine.reference.test_kernels import floats, make_node

MOST_PADDED = 30_000_000
"""Elements that padding may make of a channel: a kernel that holds them fails, and does not exhaust the machine."""

Case = tuple[list[Any], dict[str, Any]]
Meetings = list[list[tuple[int, int]]]


def inferred(op_type: str, inputs: list[Any], **attributes: Any) -> list[int]:
    """Return the shape that ONNX infers, as of opset 22, where it knows which windows of `ceil_mode` do not count."""
    graph = onnx.helper.make_graph(
        [make_node(op_type, inputs, 1, attributes)],
        "one",
        [onnx.helper.make_tensor_value_info(f"i{n}", 1, value.shape) for n, value in enumerate(inputs)],
        [onnx.helper.make_tensor_value_info("o0", 1, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
    shape = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape
    return [dim.dim_value for dim in shape.dim]


@st.composite
def sliding(draw: st.DrawFn, kernels: st.SearchStrategy[int]) -> tuple[list[int], dict[str, Any]]:
    """Spatial sizes, and attributes of windows that may be far larger."""
    rank = draw(st.integers(1, 3))
    size = draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank))
    left = MOST_PADDED
    columns: list[tuple[int, int, int, int, int]] = []
    for length in size:
        kernel = min(draw(kernels), left)
        dilation = draw(st.sampled_from([1, 1, 2, 5, 1000])) if kernel > 1 else 1
        dilation = max(1, min(dilation, left // kernel))
        reach = (kernel - 1) * dilation + 1
        stride = draw(st.one_of(st.integers(1, 3), st.sampled_from([reach, 1280])))
        count = draw(st.integers(1, 4))
        missing = max(0, (count - 1) * stride + reach - length)
        begin = draw(st.integers(0, missing))
        left = max(1, left // (length + missing))
        columns.append((kernel, dilation, stride, begin, missing - begin))
    kernel_shape, dilations, strides, begins, ends = map(list, zip(*columns, strict=True))
    attributes = {
        "kernel_shape": kernel_shape, "dilations": dilations, "strides": strides, "pads": begins + ends,
    }  # fmt: skip
    return size, attributes


@st.composite
def pooling(draw: st.DrawFn) -> tuple[str, Case]:
    size, attributes = draw(sliding(st.one_of(st.integers(1, 4), st.sampled_from([50, 1280]))))
    op_type = draw(st.sampled_from(["AveragePool", "LpPool", "MaxPool"]))
    rank = len(size)
    if draw(st.booleans()):
        # what is missing at the end is left to ceil_mode, or to auto_pad
        attributes["ceil_mode"] = 1
        attributes["pads"] = attributes["pads"][:rank] + [0] * rank
        assume(all(p < k for p, k in zip(attributes["pads"], attributes["kernel_shape"], strict=False)))
        assume(has_windows(attributes, size))
    elif draw(st.booleans()):
        del attributes["pads"]
        attributes["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
    if op_type == "AveragePool":
        attributes["count_include_pad"] = int(draw(st.booleans()))
    if op_type == "LpPool":
        attributes["p"] = draw(st.integers(1, 3))
    return op_type, ([floats(draw(st.integers(0, 99)), draw(st.integers(1, 2)), 2, *size)], attributes)


def has_windows(attributes: dict[str, Any], size: Sequence[int]) -> bool:
    """Return whether there is a window along each axis; ONNX infers one also where a little more is missing."""
    if "auto_pad" in attributes:
        return True
    reach = (np.array(attributes["kernel_shape"]) - 1) * attributes["dilations"] + 1
    room = np.array(size) + np.array(attributes["pads"]).reshape(2, -1).sum(axis=0) - reach
    return bool(np.all(room > (-np.array(attributes["strides"]) if "ceil_mode" in attributes else -1)))


def padding_of(attributes: dict[str, Any], size: list[int], out: list[int]) -> list[int]:
    """Return the padding before each axis, and after each, by the standard's text."""
    if "auto_pad" not in attributes:
        return list(attributes["pads"])
    windows = zip(attributes["kernel_shape"], attributes["dilations"], attributes["strides"], out, size, strict=True)
    missing = [max(0, (o - 1) * s + (k - 1) * d + 1 - n) for k, d, s, o, n in windows]
    half, more = [m // 2 for m in missing], [m - m // 2 for m in missing]
    return more + half if attributes["auto_pad"] == "SAME_LOWER" else half + more


def meetings(attributes: dict[str, Any], begin: list[int], size: list[int], out: list[int]) -> list[Meetings]:
    """List for each axis and window the elements it holds, each with its offset in the kernel."""
    axes = []
    for k, d, s, b, n, o in zip(
        attributes["kernel_shape"], attributes["dilations"], attributes["strides"], begin, size, out, strict=True
    ):
        found = []
        for window in range(o):
            distances = [(element + b - window * s, element) for element in range(n)]
            found.append([(x // d, e) for x, e in distances if 0 <= x <= (k - 1) * d and x % d == 0])
        axes.append(found)
    return axes


def pooled(op_type: str, x: Any, attributes: dict[str, Any], out: list[int]) -> Any:
    """Return the result of a pooling by its definition."""
    size = list(x.shape[2:])
    pads = padding_of(attributes, size, out)
    axes = meetings(attributes, pads[: len(size)], size, out)
    result: Any = np.zeros((*x.shape[:2], *out))
    for at in itertools.product(*map(range, out)):
        elements = [[element for _, element in axis[window]] for axis, window in zip(axes, at, strict=True)]
        window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *elements)].reshape(*x.shape[:2], -1)
        window = window.astype(np.float64)
        if op_type == "MaxPool":
            value = window.max(axis=2, initial=-np.inf)
        elif op_type == "LpPool":
            value = (abs(window) ** attributes["p"]).sum(axis=2) ** (1 / attributes["p"])
        else:
            count = window.shape[2]
            if attributes["count_include_pad"]:
                count = math.prod(
                    sum(-b <= s * w - b + d * offset < n + e for offset in range(k))
                    for k, d, s, b, e, n, w in zip(
                        attributes["kernel_shape"], attributes["dilations"], attributes["strides"],
                        pads[: len(size)], pads[len(size) :], size, at, strict=True,
                    )
                )  # fmt: skip
            value = window.sum(axis=2) / count if count else np.nan
        result[:, :, *at] = value
    return result.astype(np.float32)


EXPORTED: tuple[str, Case] = (
    "AveragePool",
    ([floats(0, 1, 40, 7, 7)], {
        "kernel_shape": [1280, 1280], "strides": [1280, 1280], "dilations": [1, 1], "pads": [0] * 4, "ceil_mode": 1,
        "count_include_pad": 0,
    }),
)  # fmt: skip


@st.composite
def convolution(draw: st.DrawFn) -> Case:
    size, attributes = draw(sliding(st.integers(1, 3)))
    group, channels, filters = draw(st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 2, 1), (3, 1, 1), (2, 1, 2)]))
    seed = draw(st.integers(0, 99))
    x = floats(seed, draw(st.integers(1, 2)), group * channels, *size)
    w = floats(seed + 1, group * filters, channels, *attributes["kernel_shape"])
    return [x, w, floats(seed + 2, group * filters)], {**attributes, "group": group}


def convolved(inputs: list[Any], attributes: dict[str, Any], out: list[int]) -> Any:
    """Return the result of Conv by its definition."""
    x, w, bias = (value.astype(np.float64) for value in inputs)
    size, group = list(x.shape[2:]), attributes["group"]
    axes = meetings(attributes, attributes["pads"][: len(size)], size, out)
    result: Any = np.zeros((len(x), len(w), *out))
    for at in itertools.product(*map(range, out)):
        offsets, elements = (
            [[pair[n] for pair in axis[w_]] for axis, w_ in zip(axes, at, strict=True)] for n in (0, 1)
        )
        window = x[np.ix_(range(len(x)), range(x.shape[1]), *elements)].reshape(
            len(x), group, w.shape[1], math.prod(map(len, elements))
        )
        weights = w[np.ix_(range(len(w)), range(w.shape[1]), *offsets)].reshape(
            group, len(w) // group, *window.shape[2:]
        )
        result[:, :, *at] = np.einsum("ngce,gfce->ngf", window, weights).reshape(len(x), -1) + bias
    return result.astype(np.float32)


@st.composite
def transposed_convolution(draw: st.DrawFn) -> Case:
    """Of a result that may be large, pads leave little."""
    size, attributes = draw(sliding(st.integers(1, 3)))
    group, channels, filters = draw(st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 2, 1), (2, 1, 2)]))
    begins, ends = [], []
    for n, k, d, s in zip(
        size, attributes["kernel_shape"], attributes["dilations"], attributes["strides"], strict=True
    ):
        full = (n - 1) * s + (k - 1) * d + 1
        wanted = min(full, draw(st.integers(1, 9)))
        begins.append(draw(st.integers(0, full - wanted)))
        ends.append(full - wanted - begins[-1])
    seed = draw(st.integers(0, 99))
    x = floats(seed, draw(st.integers(1, 2)), group * channels, *size)
    w = floats(seed + 1, group * channels, filters, *attributes["kernel_shape"])
    return [x, w, floats(seed + 2, group * filters)], {**attributes, "pads": begins + ends, "group": group}
