"""Compute convolutions as matrix products.

ONNX's Conv gathers every window by index arrays, and writes zeros between the elements of a dilated kernel; its
ConvTranspose adds element by element in Python; with groups the latter writes one channel per group (onnx 1.23,
`op_conv_transpose.py`: `final[image_id, group_id : group_id + 1]`), which is correct only for one output channel per
group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import (
    EVERY,
    Array,
    Tap,
    Windows,
    all_inputs,
    meetings,
    slide,
    written_out,
)

Pair = tuple[tuple[slice, ...], tuple[slice, ...]]

_LEAST_UNROLLED_BYTES = 1 << 20
_MOST_UNROLLED_BYTES = 64 << 20
"""Bounds of the unrolled input held at once; between them, it is as large as inputs and outputs together."""


def conv(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute Conv of any rank, with groups."""
    x, weight, bias = all_inputs(inputs, 3)
    result = convolve(x, weight, slide(attributes, x.shape[2:], weight.shape[2:]), attributes.get("group", 1))
    if bias is not None:
        result += bias.reshape(1, -1, *[1] * (x.ndim - 2))
    return (result,)


def causal_conv_with_state(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute CausalConvWithState, a depthwise Conv over what came before and the input."""
    x, weight, bias, past = all_inputs(inputs, 4)
    activation = attributes.get("activation", "none")
    if activation not in ("none", "silu", "swish"):
        return NotImplemented
    kept = weight.shape[2] - 1
    before = np.zeros((*x.shape[:2], kept), x.dtype) if past is None else past
    extended = np.concatenate([before, x], axis=2)
    [result] = conv([extended, weight, bias], {"group": x.shape[1]})
    if activation != "none":
        with np.errstate(over="ignore"):  # where exp is infinite, the sigmoid is 0
            result = (result / (1 + np.exp(-result))).astype(x.dtype)
    return result, extended[:, :, x.shape[2] :]


def convolve(x: Array, weight: Array, windows: Windows, group: int) -> Array:
    """Compute a convolution without bias, in the element type of `x`.

    Args:
        x: Input (batch, channels, *size).
        weight: Kernels (filters, channels / group, *kernel).
        windows: The windows over `x`.
        group: Number of groups.
    """
    x, windows = written_out(x, windows, 0)
    taps = [windows.taps(axis) for axis in range(len(windows.size))]
    result = np.zeros((x.shape[0], weight.shape[0], *windows.out), x.dtype)
    if result.size == 0 or not all(taps):
        return result
    if weight.shape[1] == 1 and weight.shape[0] == group:
        _add_depthwise(result, x, weight, taps)
        return result
    filters, channels = weight.shape[0] // group, weight.shape[1]
    matrix = _met(weight, taps).reshape(group, filters, channels, -1)
    if matrix.shape[-1] == 1 and taps_are_whole(taps, windows):
        ins = tuple(axis[0][2] for axis in taps)
        columns = x[(EVERY, EVERY, *ins)].reshape(x.shape[0], group, channels, -1)
        np.matmul(matrix[..., 0], columns, out=result.reshape(x.shape[0], group, filters, -1))
        return result
    unrolled = x.shape[1] * matrix.shape[-1] * math.prod(windows.out[1:]) * x.itemsize
    rows = room_bytes(x, weight, result) // unrolled
    for image, into in zip(x, result, strict=True):
        if rows:
            _write_unrolled(into, image, matrix, taps, rows)
        else:
            _add_products(into, image, matrix, ((outs, ins) for _, outs, ins in meetings(taps)))
    return result


def room_bytes(*arrays: Array) -> int:
    """Return how many bytes may be used to compute these inputs and outputs in fewer steps."""
    return min(_MOST_UNROLLED_BYTES, max(_LEAST_UNROLLED_BYTES, sum(array.nbytes for array in arrays)))


def taps_are_whole(taps: Sequence[Sequence[Tap]], windows: Windows) -> bool:
    """Return whether no tap misses a window: nothing is padded."""
    return all(outs == slice(0, out) for axis, out in zip(taps, windows.out, strict=True) for _, outs, _ in axis)


def _met(weight: Array, taps: Sequence[Sequence[Tap]]) -> Array:
    """Return the elements of kernels that meet the input."""
    if all(len(axis) == length for axis, length in zip(taps, weight.shape[2:], strict=True)):
        return weight
    met: tuple[Any, ...] = np.ix_(*([offset for offset, _, _ in axis] for axis in taps))
    return weight[(EVERY, EVERY, *met)]


def _add_depthwise(result: Array, x: Array, weight: Array, taps: Sequence[Sequence[Tap]]) -> None:
    """Add up the shifted inputs: one product per kernel element, nothing unrolled."""
    broadcast = (1, -1, *[1] * (x.ndim - 2))
    for offsets, outs, ins in meetings(taps):
        element: tuple[Any, ...] = (EVERY, 0, *offsets)
        result[(EVERY, EVERY, *outs)] += x[(EVERY, EVERY, *ins)] * weight[element].reshape(broadcast)


def _write_unrolled(result: Array, image: Array, matrix: Array, taps: Sequence[Sequence[Tap]], rows: int) -> None:
    """Compute one image, some rows of its output at a time, each by a product with the unrolled input (im2col).

    Args:
        result: Output (filters, *out).
        image: Input (channels, *size).
        matrix: Kernels (group, filters / group, channels / group, taps).
        taps: What each axis's offsets meet.
        rows: Number of indices of the first output axis whose unrolled input is held at once.
    """
    group, filters, channels, count = matrix.shape
    height, inner = result.shape[1], result.shape[2:]
    row = math.prod(inner)
    buffer = np.empty(len(image) * count * min(rows, height) * row, image.dtype)
    flat = result.reshape(group, filters, -1)
    for start in range(0, height, rows):
        stop = min(start + rows, height)
        size = len(image) * count * (stop - start) * row
        columns = buffer[:size].reshape(len(image), count, stop - start, *inner)
        part = [[_between(tap, start, stop) for tap in taps[0]], *taps[1:]]
        for number, (_, outs, ins) in enumerate(meetings(part)):
            target = columns[:, number]
            if any(o != slice(0, length) for o, length in zip(outs, target.shape[1:], strict=True)):
                target[...] = 0
            target[(EVERY, *outs)] = image[(EVERY, *ins)]
        np.matmul(
            matrix.reshape(group, filters, -1),
            columns.reshape(group, channels * count, -1),
            out=flat[:, :, start * row : stop * row],
        )


def _between(tap: Tap, start: int, stop: int) -> Tap:
    """Return a tap of the windows from `start` to `stop`, counted from `start`; it may meet none of them."""
    offset, outs, ins = tap
    first, last = max(outs.start, start), min(outs.stop, stop)
    if first >= last:
        return offset, slice(0, 0), slice(0, 0)
    at = ins.start + (first - outs.start) * ins.step
    return offset, slice(first - start, last - start), slice(at, at + (last - first - 1) * ins.step + 1, ins.step)


def _add_products(result: Array, image: Array, matrix: Array, pairs: Iterable[Pair]) -> None:
    """Add one product per kernel element to one image of the output.

    Args:
        result: Output (filters, *out).
        image: Input (channels, *size).
        matrix: Kernels (group, filters / group, channels / group, taps).
        pairs: For each tap the elements of the output, and those of the input that they get its product with.
    """
    group, _, channels, _ = matrix.shape
    for number, (into, source) in enumerate(pairs):
        part = image[(EVERY, *source)]
        product = matrix[..., number] @ part.reshape(group, channels, -1)
        result[(EVERY, *into)] += product.reshape(len(result), *part.shape[1:])


def conv_transpose(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute ConvTranspose of any rank, with groups, output padding and output shape."""
    x, weight, bias = all_inputs(inputs, 3)
    group = attributes.get("group", 1)
    windows = _transposed_windows(attributes, x.shape[2:], weight.shape[2:])
    batch, rank = x.shape[0], x.ndim - 2
    result = np.zeros((batch, group * weight.shape[1], *windows.size), x.dtype)
    taps = [windows.taps(axis) for axis in range(rank)]
    if result.size and x.size and all(taps):
        # (group, filters / group, channels / group, taps): what is added is the transposed product
        matrix = np.swapaxes(_met(weight, taps).reshape(group, x.shape[1] // group, weight.shape[1], -1), 1, 2)
        for image, into in zip(x, result, strict=True):
            _add_products(into, image, matrix, ((ins, outs) for _, outs, ins in meetings(taps)))
    if bias is not None:
        result += bias.reshape(1, -1, *[1] * rank)
    return (result,)


def _transposed_windows(attributes: Mapping[str, Any], size: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Return the windows over the *output* to which the elements of the input add, by the standard's formulas."""
    rank = len(size)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    more = attributes.get("output_padding") or [0] * rank
    full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, size, kernel, dilations, strict=True)]
    mode = attributes.get("auto_pad") or "NOTSET"
    wanted = attributes.get("output_shape")
    if wanted:
        wanted = list(wanted)[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(size, strides, strict=True)]
    if wanted:
        totals = [f + m - w for f, m, w in zip(full, more, wanted, strict=True)]
        begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals]
    else:
        pads = list((attributes.get("pads") if mode == "NOTSET" else None) or [0] * (2 * rank))
        begin = pads[:rank]
        wanted = [f + m - b - e for f, m, b, e in zip(full, more, begin, pads[rank:], strict=True)]
    return Windows(
        size=tuple(wanted),
        kernel=tuple(kernel),
        strides=tuple(strides),
        dilations=tuple(dilations),
        begin=tuple(begin),
        end=tuple(f - b - w for f, b, w in zip(full, begin, wanted, strict=True)),
        out=tuple(size),
    )
