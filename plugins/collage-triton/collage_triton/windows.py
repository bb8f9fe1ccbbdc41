"""Windows over an image: the input index of each window position, or whether it is padding."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir

from collage_core.ir.operators import windows as geometry
from collage_triton.expand import Index, required, shape_of
from collage_triton.terms import Term, Terms


class Windows(geometry.Windows):
    """Windows whose elements are terms."""

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
    return Windows.of(node, shape_of(required(node, 0))[2:], shape_of(node.outputs[0])[2:], kernel)
