"""Compute pads, output sizes and sliding windows for convolution and pooling."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
    """Sliding windows over the spatial axes.

    Attributes:
        kernel: Kernel size along each axis.
        strides: Step between windows.
        dilations: Step between the elements of one window.
        begin: Padding elements before each axis.
        end: Padding elements after each axis, as the node requests.
        out: Number of windows along each axis.
        extra: Further elements that the last window of `ceil_mode` covers beyond `end`; averages exclude them.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]
    extra: tuple[int, ...]


def slide(attributes: Mapping[str, Any], size: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Compute the windows of a Conv or pooling node over spatial axes of the given sizes."""
    rank = len(size)
    strides = tuple(attributes.get("strides") or [1] * rank)
    dilations = tuple(attributes.get("dilations") or [1] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    automatic = attributes.get("auto_pad") or "NOTSET"
    pads = list(attributes.get("pads") or [0] * (2 * rank))
    if automatic != "NOTSET":
        pads = _automatic_pads(automatic, size, reach, strides)
    out, extra = [], []
    for axis in range(rank):
        room = size[axis] + pads[axis] + pads[axis + rank] - reach[axis]
        count = room // strides[axis] + 1
        if attributes.get("ceil_mode") and room % strides[axis]:
            count += 1
            # the last window has to start inside the input or the padding before it
            if (count - 1) * strides[axis] >= size[axis] + pads[axis]:
                count -= 1
        out.append(max(count, 0))
        needed = (count - 1) * strides[axis] + reach[axis]
        extra.append(max(needed - size[axis] - pads[axis] - pads[axis + rank], 0))
    return Windows(
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        begin=tuple(pads[:rank]),
        end=tuple(pads[rank:]),
        out=tuple(out),
        extra=tuple(extra),
    )


def padded(x: Array, windows: Windows, fill: float) -> Array:
    """Pad the spatial axes so that every window lies inside."""
    if not any((*windows.begin, *windows.end, *windows.extra)):
        return x
    ends = [e + extra for e, extra in zip(windows.end, windows.extra, strict=True)]
    return pad_or_crop(x, [(0, 0), (0, 0), *zip(windows.begin, ends, strict=True)], fill)


def pad_or_crop(x: Array, widths: Sequence[tuple[int, int]], fill: Any) -> Array:
    """Pad each axis before and after with a constant; a negative width crops."""
    kept = tuple(slice(max(-b, 0), n - max(-e, 0)) for (b, e), n in zip(widths, x.shape, strict=True))
    return np.pad(x[kept], [(max(b, 0), max(e, 0)) for b, e in widths], constant_values=fill)


def view(x: Array, windows: Windows) -> Array:
    """Return all windows of padded input: axes (batch, channel, *out, *kernel), without copying."""
    rank = len(windows.kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    axes = tuple(range(2, 2 + rank))
    every = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    steps = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(windows.out, windows.strides, strict=True))
    inside = tuple(slice(None, None, d) for d in windows.dilations)
    return every[(slice(None), slice(None), *steps, *inside)]


def offset_slice(windows: Windows, axis: int, position: int) -> slice:
    """Return where all windows of one axis have their element `position`."""
    start = position * windows.dilations[axis]
    stride = windows.strides[axis]
    return slice(start, start + (windows.out[axis] - 1) * stride + 1, stride)


def all_inputs(inputs: Sequence[Any], count: int) -> list[Any]:
    """Return as many inputs as an operator can have, None for those left out at the end."""
    return [*inputs, *[None] * (count - len(inputs))]


def _automatic_pads(mode: str, size: Sequence[int], reach: Sequence[int], strides: Sequence[int]) -> list[int]:
    if mode == "VALID":
        return [0] * (2 * len(size))
    begin, end = [], []
    for n, k, s in zip(size, reach, strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        small, large = total // 2, total - total // 2
        begin.append(large if mode == "SAME_LOWER" else small)
        end.append(small if mode == "SAME_LOWER" else large)
    return begin + end
