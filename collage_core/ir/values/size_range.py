"""Sizes that vary from run to run: an extent of a model's input that is a range instead of a number."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

_WRITTEN: Final = re.compile(r"([0-9]{1,12})\.\.([0-9]{1,12})(?:@([0-9]{1,12}))?")


@dataclasses.dataclass(frozen=True, slots=True)
class SizeRange:
    """The sizes that one extent may have.

    Attributes:
        least: The smallest, not negative.
        most: The largest.
        typical: The size at which kernels are measured.

    Raises:
        ValueError: If they are not in order.

    Examples:
        >>> str(SizeRange(1, 512, 128)), str(SizeRange.between(1, 9))
        ('1..512@128', '1..9')
        >>> SizeRange.parse("1..512@128")
        SizeRange(least=1, most=512, typical=128)
    """

    least: int
    most: int
    typical: int

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.typical <= self.most:
            raise ValueError(f"{self.least}..{self.most}@{self.typical} is no range of sizes with one of its own")

    @classmethod
    def between(cls, least: int, most: int) -> SizeRange:
        """Return the range whose typical size is the middle, which is right where all sizes are equally likely."""
        return cls(least, most, (least + most) // 2)

    @classmethod
    def parse(cls, text: str) -> SizeRange:
        """Read what `str` writes.

        Raises:
            ValueError: If it is nothing of the kind.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no range of sizes; write 1..512, or 1..512@128 with the typical size")
        least, most = int(found[1]), int(found[2])
        return cls.between(least, most) if found[3] is None else cls(least, most, int(found[3]))

    def near(self, share: float) -> range:
        """Return the sizes that differ from the typical one by at most a share of it.

        Examples:
            >>> SizeRange(1, 512, 40).near(1 / 8), SizeRange(0, 9, 7).near(0.5), SizeRange(1, 64, 1).near(0.5)
            (range(35, 46), range(4, 10), range(1, 2))
        """
        most = int(share * self.typical)
        return range(max(self.least, self.typical - most), min(self.most, self.typical + most) + 1)

    def __contains__(self, size: object) -> bool:
        return isinstance(size, int) and self.least <= size <= self.most

    def __str__(self) -> str:
        said = f"{self.least}..{self.most}"
        return said if self == SizeRange.between(self.least, self.most) else f"{said}@{self.typical}"


Extent: TypeAlias = int | SizeRange
Shape: TypeAlias = tuple[Extent, ...]
"""Shape of an input: each extent a number, or a range."""


def shape_within(shape: Sequence[Extent], other: Sequence[Extent]) -> bool:
    """Return whether a shape is one of those that another allows.

    Examples:
        >>> shape_within((1, 7), (1, SizeRange.between(1, 512)))
        True
    """
    return len(shape) == len(other) and all(
        size == extent or (isinstance(extent, SizeRange) and size in extent)
        for size, extent in zip(shape, other, strict=True)
    )


def largest_shape(shape: Sequence[Extent]) -> tuple[int, ...]:
    """Return a shape with the largest size of each range."""
    return tuple(extent.most if isinstance(extent, SizeRange) else extent for extent in shape)


def is_static(shape: Sequence[Extent]) -> bool:
    """Return whether no extent is a range."""
    return not any(isinstance(extent, SizeRange) for extent in shape)
