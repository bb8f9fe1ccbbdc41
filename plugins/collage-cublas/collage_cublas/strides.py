"""Strides of a tensor in elements: Transposes and broadcasting change them without moving data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Self


@dataclasses.dataclass(frozen=True, slots=True)
class Strided:
    """Extents and strides of a tensor.

    Attributes:
        shape: Elements along each axis.
        strides: In elements; 0 along an axis that is broadcast.

    Examples:
        >>> Strided.row_major((2, 3, 4)).permuted((0, 2, 1))
        Strided(shape=(2, 4, 3), strides=(12, 1, 4))
        >>> Strided.row_major((4,)).broadcast((2, 4)).strides
        (0, 1)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def row_major(cls, shape: Sequence[int]) -> Self:
        """Return the row-major strides of a shape, as in buffers."""
        return cls(tuple(shape), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))

    def permuted(self, order: Sequence[int]) -> Strided:
        """Return the result of ONNX's Transpose with `perm=order`."""
        return Strided(tuple(self.shape[axis] for axis in order), tuple(self.strides[axis] for axis in order))

    def broadcast(self, shape: Sequence[int]) -> Strided:
        """Broadcast as NumPy and ONNX do.

        Raises:
            ValueError: If it cannot be broadcast to `shape`.
        """
        missing = len(shape) - len(self.shape)
        own = (1,) * missing + self.shape
        if missing < 0 or any(one not in (1, other) for one, other in zip(own, shape, strict=True)):
            raise ValueError(f"{list(self.shape)} does not broadcast to {list(shape)}")
        strides = (0,) * missing + self.strides
        return Strided(tuple(shape), tuple(s if one != 1 else 0 for s, one in zip(strides, own, strict=True)))

    def with_axis(self, axis: int) -> Strided:
        """Insert an axis of one element before the axis of this number."""
        return Strided((*self.shape[:axis], 1, *self.shape[axis:]), (*self.strides[:axis], 0, *self.strides[axis:]))

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """Return the result of ONNX's Reshape if no data has to move, else None.

        Axes are grouped until both sides have the same number of elements; the axes of one group must be contiguous in
        memory, and are then split again.

        Args:
            shape: New shape with the same number of elements, and no extent of 0.

        Examples:
            >>> Strided((4, 6), (0, 1)).reshaped((2, 2, 6))
            Strided(shape=(2, 2, 6), strides=(0, 0, 1))
            >>> Strided((4, 6), (0, 1)).reshaped((24,)) is None
            True
        """
        strides: list[int] = []
        old = iter((one, step) for one, step in zip(self.shape, self.strides, strict=True) if one > 1)
        new = list(shape)
        while new:
            extents, axis = [new.pop(0)], None
            while (have := math.prod(extents)) != (held := axis[0] if axis else 1):
                if have < held:
                    extents.append(new.pop(0))
                    continue
                extent, step = next(old)
                if axis is not None and axis[1] != step * extent:
                    return None
                axis = (held * extent, step)
            _, step = axis or (1, 0)
            strides += [step * math.prod(extents[place + 1 :]) for place in range(len(extents))]
        return Strided(tuple(shape), tuple(strides))
