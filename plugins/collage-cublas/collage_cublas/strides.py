"""How a tensor lies in memory, in elements: what a Transpose and broadcasting change without moving anything."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Self


@dataclasses.dataclass(frozen=True, slots=True)
class Strided:
    """Extents, and how far apart neighbours along each axis are.

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
        """As buffers hold tensors."""
        return cls(tuple(shape), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))

    def permuted(self, order: Sequence[int]) -> Strided:
        """What ONNX's Transpose with `perm=order` gives."""
        return Strided(tuple(self.shape[axis] for axis in order), tuple(self.strides[axis] for axis in order))

    def broadcast(self, shape: Sequence[int]) -> Strided:
        """Repeated as NumPy and ONNX do.

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
        """With an axis of one element inserted before the axis of this number."""
        return Strided((*self.shape[:axis], 1, *self.shape[axis:]), (*self.strides[:axis], 0, *self.strides[axis:]))

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """What ONNX's Reshape gives, where that moves nothing.

        Axes are taken together until both sides have as many elements; those of one such group have to be one axis in
        memory, which is then split anew.

        Args:
            shape: Of as many elements, none of its extents 0.

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
