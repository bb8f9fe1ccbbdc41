"""Sets of node indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator


def iterate_bits(bits: int) -> Iterator[int]:
    """Positions of the one bits of a mask, lowest first.

    Examples:
        >>> list(iterate_bits(0b1010))
        [1, 3]
    """
    first = max(0, (bits & -bits).bit_length() - 1)
    if first:  # most masks are a few neighbours far into a graph: what is moved to the front is one machine word
        bits >>= first
    while bits:
        lowest = bits & -bits
        yield first + lowest.bit_length() - 1
        bits ^= lowest


def hashable(bits: int) -> tuple[int, int]:
    """A mask in a form whose hash tells masks apart that have the same pattern in different places.

    Python's hash of an integer is its remainder by 2**61 - 1, the same for a mask and one 61 places further: in long
    graphs of repeated layers, dictionaries by mask would be lists.

    Examples:
        >>> hash(0b11) == hash(0b11 << 61), hash(hashable(0b11)) == hash(hashable(0b11 << 61))
        (True, False)
    """
    low = (bits & -bits).bit_length()
    return low, bits >> low


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class IndexSet:
    """A set of node indices, kept as the bits of one integer; hot loops use that integer directly.

    Attributes:
        bits: Bit i is one if index i is in the set.

    Examples:
        >>> a = IndexSet.of([0, 2, 5])
        >>> list(a | IndexSet.of([1])), 2 in a, len(a)
        ([0, 1, 2, 5], True, 3)
        >>> a
        IndexSet.of([0, 2, 5])
    """

    bits: int = 0

    def __post_init__(self) -> None:
        if self.bits < 0:
            raise ValueError("an index set is finite: its bits are a number >= 0")

    @classmethod
    def of(cls, indices: Iterable[int]) -> IndexSet:
        """The set of `indices`.

        Raises:
            ValueError: If an index is negative.
        """
        bits = 0
        for index in indices:
            bits |= 1 << index
        return cls(bits)

    def __iter__(self) -> Iterator[int]:
        return iterate_bits(self.bits)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __contains__(self, index: int) -> bool:
        return index >= 0 and bool(self.bits >> index & 1)

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.bits | other.bits)

    def __and__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.bits & other.bits)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.bits & ~other.bits)

    def __xor__(self, other: IndexSet) -> IndexSet:
        return IndexSet(self.bits ^ other.bits)

    def issubset(self, other: IndexSet) -> bool:
        """Whether every index is in `other` too."""
        return self.bits & ~other.bits == 0

    def isdisjoint(self, other: IndexSet) -> bool:
        """Whether no index is in both."""
        return self.bits & other.bits == 0

    @property
    def lowest(self) -> int:
        """The smallest index.

        Raises:
            ValueError: If the set is empty.
        """
        if not self.bits:
            raise ValueError("an empty index set has no lowest index")
        return (self.bits & -self.bits).bit_length() - 1

    def __repr__(self) -> str:
        return f"IndexSet.of({list(self)})"
