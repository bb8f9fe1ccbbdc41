"""Compute pads, output sizes and sliding windows for convolution and pooling.

No array here or in what uses it grows with the padding or the kernel: an exporter may ask for an average over
1280 x 1280 elements of which 7 x 7 exist. Windows are visited offset by offset of the kernel, each clipped to the
input.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

Tap = tuple[int, slice, slice]
"""An offset into the kernel along one axis, the windows that have an element of the input there, and those elements."""

EVERY = slice(None)


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
    """Sliding windows over the spatial axes.

    Attributes:
        size: Number of input elements along each axis, without padding.
        kernel: Kernel size along each axis.
        strides: Step between windows.
        dilations: Step between the elements of one window.
        begin: Padding elements before each axis.
        end: Padding elements after each axis, as the node requests; the last window of `ceil_mode` may cover more.
        out: Number of windows along each axis.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]

    def taps(self, axis: int) -> list[Tap]:
        """List what every offset of one axis meets, in ascending order; offsets that meet only padding are absent.

        There are no more than pairs of a window and an element of the input, however large the kernel is.

        Examples:
            >>> slide({"pads": [2, 2]}, size=[2], kernel=[5]).taps(0)
            [(1, slice(1, 2, None), slice(0, 1, 1)),
             (2, slice(0, 2, None), slice(0, 2, 1)),
             (3, slice(0, 1, None), slice(1, 2, 1))]
        """
        size, stride, count = self.size[axis], self.strides[axis], self.out[axis]
        found = []
        for offset in self._offsets(axis):
            start = offset * self.dilations[axis] - self.begin[axis]
            first = max(0, -(start // stride))
            last = min(count - 1, (size - 1 - start) // stride)
            if first <= last:
                inside = slice(first * stride + start, last * stride + start + 1, stride)
                found.append((offset, slice(first, last + 1), inside))
        return found

    def _offsets(self, axis: int) -> Iterator[int]:
        """Yield the offsets at which some window may meet the input, without trying those of a large kernel."""
        dilation, following = self.dilations[axis], 0
        for window in reversed(range(self.out[axis])):
            start = window * self.strides[axis] - self.begin[axis]
            beyond = min(self.kernel[axis], (self.size[axis] - 1 - start) // dilation + 1)
            yield from range(max(following, -(start // dilation)), beyond)
            following = max(following, beyond)
            if following >= self.kernel[axis]:
                return

    def counts(self, axis: int, *, with_padding: bool) -> Array:
        """Count the elements of every window of one axis that lie in the input, or in the input and its padding."""
        kernel, dilation = self.kernel[axis], self.dilations[axis]
        start = np.arange(self.out[axis]) * self.strides[axis] - self.begin[axis]
        low = -self.begin[axis] if with_padding else 0
        high = self.size[axis] + (self.end[axis] if with_padding else 0)
        before, upto = (np.clip(-((start - limit) // dilation), 0, kernel) for limit in (low, high))
        return upto - before

    def shrinking_first(self) -> list[int]:
        """Order the axes so that no step of an axis-by-axis computation is larger than both input and output."""
        return sorted(range(len(self.size)), key=lambda axis: self.out[axis] / max(self.size[axis], 1))


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
    out = []
    for axis in range(rank):
        room = size[axis] + pads[axis] + pads[axis + rank] - reach[axis]
        count = room // strides[axis] + 1
        if attributes.get("ceil_mode") and room % strides[axis]:
            count += 1
            # the last window has to start inside the input or the padding before it
            if (count - 1) * strides[axis] >= size[axis] + pads[axis]:
                count -= 1
        out.append(max(count, 0))
    return Windows(
        size=tuple(size),
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        begin=tuple(pads[:rank]),
        end=tuple(pads[rank:]),
        out=tuple(out),
    )


def written_out(x: Array, windows: Windows, fill: Any) -> tuple[Array, Windows]:
    """Write the padding into the input where that does not double it, and return the windows over the result.

    Then no window is clipped. NumPy is faster by a third on whole rows of small images than on most of each.
    """
    ends = [
        max((n - 1) * s + (k - 1) * d + 1 - b - size, 0)
        for n, s, k, d, b, size in zip(
            windows.out, windows.strides, windows.kernel, windows.dilations, windows.begin, windows.size, strict=True
        )
    ]
    sizes = tuple(b + size + e for b, size, e in zip(windows.begin, windows.size, ends, strict=True))
    if sizes == windows.size or math.prod(sizes) > 2 * math.prod(windows.size):
        return x, windows
    padded = pad_or_crop(x, [(0, 0), (0, 0), *zip(windows.begin, ends, strict=True)], fill)
    return padded, dataclasses.replace(windows, size=sizes, begin=(0,) * len(sizes))


def meetings(taps: Sequence[Sequence[Tap]]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """Yield for all axes together what `Windows.taps` lists for each: the offset, the windows, the elements."""
    for choice in itertools.product(*taps):
        offsets, outs, ins = zip(*choice, strict=True)
        yield offsets, outs, ins


def pad_or_crop(x: Array, widths: Sequence[tuple[int, int]], fill: Any) -> Array:
    """Pad each axis before and after with a constant; a negative width crops."""
    kept = tuple(slice(max(-b, 0), n - max(-e, 0)) for (b, e), n in zip(widths, x.shape, strict=True))
    return np.pad(x[kept], [(max(b, 0), max(e, 0)) for b, e in widths], constant_values=fill)


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
