"""Sets of node indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def iterate_bits(bits: int) -> Iterator[int]:
    """Yield the positions of the one bits of a mask, lowest first.

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
    """Convert a mask to a form whose hash depends on the position of its bits.

    Python hashes an integer as its remainder modulo 2**61 - 1, so a mask and the mask shifted by 61 bits collide: in
    long graphs of repeated layers, dictionaries keyed by masks would degrade to lists.

    Examples:
        >>> hash(0b11) == hash(0b11 << 61), hash(hashable(0b11)) == hash(hashable(0b11 << 61))
        (True, False)
    """
    low = (bits & -bits).bit_length()
    return low, bits >> low


def mask_of(indices: Iterable[int]) -> int:
    """Return the mask of these positions.

    Examples:
        >>> bin(mask_of([1, 3]))
        '0b1010'
    """
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


def union_of(masks: Iterable[int]) -> int:
    """Return the union of masks.

    Examples:
        >>> bin(union_of([0b1000, 0b0010]))
        '0b1010'
    """
    union = 0
    for mask in masks:
        union |= mask
    return union


def lowest_bit(bits: int) -> int:
    """Return the position of the lowest one bit of a mask that is not 0.

    Examples:
        >>> lowest_bit(0b1010)
        1
    """
    return (bits & -bits).bit_length() - 1
