"""Windows over an image: the input index of each window position, or whether it is padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx_ir

from collage_triton.expand import Index, attribute, required, shape_of
from collage_triton.terms import Term, Terms


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of a convolution or a pooling; each attribute has an entry for each spatial axis.

    Attributes:
        shape: Extents of the input.
        kernel: Size of a window.
        result: Number of windows.
        steps: Distance between windows.
        dilations: Distance between neighbours in a window.
        before: Padding before the input.
        after: Padding after the input.
    """

    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]
    steps: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def beyond(self, axis: int) -> int:
        """Return how many elements the last window extends beyond the input's end."""
        last = (self.result[axis] - 1) * self.steps[axis] + (self.kernel[axis] - 1) * self.dilations[axis]
        return last - self.before[axis] - (self.shape[axis] - 1)

    @property
    def are_inside(self) -> bool:
        """Whether no window contains padding."""
        return not any(self.before) and all(self.beyond(axis) <= 0 for axis in range(len(self.shape)))

    def met(self, t: Terms, places: Index, at: Index) -> tuple[Index, Term | None]:
        """Return the input's index, and whether it is inside; None if it always is. Outside the index is 0.

        Args:
            t: Creates terms.
            places: Index of the window.
            at: Position in the window.
        """
        inside: Term | None = None
        index = []
        for axis, extent in enumerate(self.shape):
            place = t.plus(t.times(places[axis], self.steps[axis]), t.times(at[axis], self.dilations[axis]))
            if self.before[axis] == 0 and self.beyond(axis) <= 0:
                index.append(place)
                continue
            place = t.plus(place, t.index(-self.before[axis]))
            here = t.apply("lt", place, t.index(extent), dtype="i1")
            if self.before[axis]:
                here = t.apply("and", t.apply("ge", place, t.index(0), dtype="i1"), here)
            index.append(t.within(here, place, extent))
            inside = here if inside is None else t.apply("and", inside, here)
        return tuple(index), inside


def windows_of(node: onnx_ir.Node, kernel: Sequence[int]) -> Windows:
    """Return the windows of an operator.

    Args:
        node: A Conv, MaxPool or AveragePool.
        kernel: Size of a window.
    """
    shape, result = shape_of(required(node, 0))[2:], shape_of(node.outputs[0])[2:]
    steps = tuple(attribute(node, "strides") or (1,) * len(shape))
    dilations = tuple(attribute(node, "dilations") or (1,) * len(shape))
    before, after = _pads(node, shape, kernel, result, steps, dilations)
    return Windows(
        shape=shape,
        kernel=tuple(kernel),
        result=result,
        steps=steps,
        dilations=dilations,
        before=before,
        after=after,
    )


def _pads(
    node: onnx_ir.Node,
    shape: Sequence[int],
    kernel: Sequence[int],
    result: Sequence[int],
    steps: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each axis."""
    automatic = str(attribute(node, "auto_pad", "NOTSET"))
    none = (0,) * len(shape)
    if automatic not in ("SAME_UPPER", "SAME_LOWER"):
        given = attribute(node, "pads")
        padded = bool(given) and automatic == "NOTSET"
        return (tuple(given[: len(shape)]), tuple(given[len(shape) :])) if padded else (none, none)
    less, more = [], []
    for axis, extent in enumerate(shape):
        both = max(0, (result[axis] - 1) * steps[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - extent)
        less.append(both // 2)
        more.append(both - both // 2)
    return (tuple(less), tuple(more)) if automatic == "SAME_UPPER" else (tuple(more), tuple(less))
