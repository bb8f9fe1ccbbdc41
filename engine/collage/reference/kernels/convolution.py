"""Compute Conv and ConvTranspose as matrix products.

ONNX's Conv gathers every window by index arrays, its ConvTranspose adds element by element in Python; with groups
the latter writes one channel per group (onnx 1.23, `op_conv_transpose.py`: `final[image_id, group_id : group_id + 1]`),
which is correct only for one output channel per group.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array, Windows, all_inputs, offset_slice, pad_or_crop, padded, slide, view

_CHUNK_ELEMENTS = 1 << 24
"""Elements of unrolled input held at once: 64 MiB of float32."""


def conv(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute Conv of any rank, with groups."""
    x, weight, bias = all_inputs(inputs, 3)
    group = attributes.get("group", 1)
    windows = slide(attributes, x.shape[2:], weight.shape[2:])
    source = padded(x, windows, 0)
    channels = x.shape[1] // group
    if channels == 1 and weight.shape[0] == group:
        result = _depthwise(source, weight, windows)
    else:
        result = _grouped(source, weight, windows, group)
    if bias is not None:
        result += bias.reshape(1, -1, *[1] * (x.ndim - 2))
    return (result,)


def _depthwise(source: Array, weight: Array, windows: Windows) -> Array:
    """Add up the shifted inputs: one product per kernel element, nothing unrolled."""
    batch, channels = source.shape[:2]
    result = np.zeros((batch, channels, *windows.out), source.dtype)
    broadcast = (1, channels, *[1] * len(windows.out))
    for position in itertools.product(*map(range, windows.kernel)):
        where = (offset_slice(windows, axis, offset) for axis, offset in enumerate(position))
        factor = weight[(slice(None), 0, *position)].reshape(broadcast)  # type: ignore[arg-type]
        result += source[(slice(None), slice(None), *where)] * factor
    return result


def _grouped(source: Array, weight: Array, windows: Windows, group: int) -> Array:
    batch, channels = source.shape[0], source.shape[1] // group
    filters = weight.shape[0] // group
    rank = len(windows.out)
    every = view(source, windows)
    matrix = weight.reshape(group, filters, -1)
    result = np.empty((batch, weight.shape[0], *windows.out), source.dtype)
    if result.size == 0:
        return result
    # from (batch, channel, *out, *kernel) to (channel, *kernel, *out), so that the copy runs along the last axis
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    per_row = source.shape[1] * int(np.prod(windows.kernel)) * int(np.prod(windows.out[1:]))
    rows = max(1, _CHUNK_ELEMENTS // max(per_row, 1))
    for image in range(batch):
        for start in range(0, windows.out[0], rows):
            stop = min(start + rows, windows.out[0])
            part = every[image][:, start:stop].transpose(order)
            columns = part.reshape(group, channels * int(np.prod(windows.kernel)), -1)
            product = matrix @ columns
            result[image, :, start:stop] = product.reshape(weight.shape[0], stop - start, *windows.out[1:])
    return result


def conv_transpose(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute ConvTranspose of any rank, with groups, output padding and output shape."""
    x, weight, bias = all_inputs(inputs, 3)
    group = attributes.get("group", 1)
    size, kernel, rank = x.shape[2:], weight.shape[2:], x.ndim - 2
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    more = attributes.get("output_padding") or [0] * rank
    full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, size, kernel, dilations, strict=True)]
    begin, out = _transposed_extent(attributes, size, strides, full, more)
    filters = weight.shape[1]
    batch, channels = x.shape[:2]
    columns = np.matmul(
        weight.reshape(1, group, channels // group, -1).transpose(0, 1, 3, 2),
        x.reshape(batch, group, channels // group, -1),
    ).reshape(batch, group * filters, *kernel, *size)
    result = np.zeros((batch, group * filters, *full), columns.dtype)
    for position in itertools.product(*map(range, kernel)):
        where = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(position, dilations, size, strides, strict=True)
        )
        result[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *position)]
    # from -begin to out, zero where that reaches beyond what the kernel writes
    ends = [b + o - f for b, o, f in zip(begin, out, full, strict=True)]
    result = pad_or_crop(result, [(0, 0), (0, 0), *((-b, e) for b, e in zip(begin, ends, strict=True))], 0)
    if bias is not None:
        result = result + bias.reshape(1, -1, *[1] * rank)
    return (result.astype(x.dtype, copy=False),)


def _transposed_extent(
    attributes: Mapping[str, Any],
    size: Sequence[int],
    strides: Sequence[int],
    full: Sequence[int],
    more: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return where the output starts in the full result, and its size, by the standard's formulas."""
    rank = len(size)
    mode = attributes.get("auto_pad") or "NOTSET"
    wanted = attributes.get("output_shape")
    if wanted:
        wanted = list(wanted)[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(size, strides, strict=True)]
    if wanted:
        totals = [f + m - w for f, m, w in zip(full, more, wanted, strict=True)]
        begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals]
        return begin, wanted
    pads = attributes.get("pads") if mode == "NOTSET" else None
    pads = list(pads or [0] * (2 * rank))
    out = [f + m - b - e for f, m, b, e in zip(full, more, pads[:rank], pads[rank:], strict=True)]
    return pads[:rank], out
