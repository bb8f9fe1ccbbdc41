"""Windows of convolutions and poolings over an image: where each is, and how far the last one reaches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import onnx_ir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows of an operator; each attribute has an entry for each spatial axis.

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

    @classmethod
    def of(cls, node: onnx_ir.Node, shape: Sequence[int], result: Sequence[int], kernel: Sequence[int]) -> Self:
        """Return the windows of a Conv, MaxPool or AveragePool.

        Args:
            node: The node.
            shape: Spatial extents of its input.
            result: Spatial extents of its output.
            kernel: Size of a window.
        """

        def given(name: str) -> Any:
            attribute = node.attributes.get(name)
            return None if attribute is None else attribute.value

        rank = len(shape)
        steps, dilations = (tuple(given(name) or (1,) * rank) for name in ("strides", "dilations"))
        automatic = given("auto_pad") or "NOTSET"
        before = after = (0,) * rank
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            reach = [(result[k] - 1) * steps[k] + (kernel[k] - 1) * dilations[k] + 1 for k in range(rank)]
            both = [max(0, each - extent) for each, extent in zip(reach, shape, strict=True)]
            less, more = tuple(each // 2 for each in both), tuple(each - each // 2 for each in both)
            before, after = (less, more) if automatic == "SAME_UPPER" else (more, less)
        elif automatic == "NOTSET" and (pads := given("pads")):
            before, after = tuple(pads[:rank]), tuple(pads[rank:])
        return cls(
            shape=tuple(shape),
            kernel=tuple(kernel),
            result=tuple(result),
            steps=steps,
            dilations=dilations,
            before=before,
            after=after,
        )

    def beyond(self, axis: int) -> int:
        """Return how many elements the last window extends beyond the input's end."""
        last = (self.result[axis] - 1) * self.steps[axis] + (self.kernel[axis] - 1) * self.dilations[axis]
        return last - self.before[axis] - (self.shape[axis] - 1)
