"""What registers hold: vectors of an axis, and sums side by side, as in a product of matrices."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from collage_halide.nests import Nest

LATENCY = 8
"""Multiplications that a core has under way at a time."""
MOST = 16
"""Results, and vectors of each, beyond which no register is left."""
_SUMS, _SUMS_OF_AVX512 = 12, 20
"""Vectors of sums that leave registers for what is multiplied, of 16 and of 32 registers."""
_LANES_OF_AVX512 = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """Sums that stay in registers together.

    Attributes:
        axis: Axis of the sink along which what is loaded in vectors stays the same, as channels of a convolution.
        results: Elements along it.
        width: Elements along the innermost axis, a multiple of a vector.
    """

    axis: int
    results: int
    width: int


def tile_of(nest: Nest, axes: Sequence[int], lanes: int) -> Tile | None:
    """Return which sums of a nest stay in registers together; None if no two of them load the same vectors.

    Of all tiles that fit, the one is taken with which the whole takes the least time, the larger of equals: a core
    begins one multiplication and one load at a time, and the next addition to a sum waits for the one before.

    Args:
        nest: The nest.
        axes: Axes of its sink with more than one element, or the innermost one.
        lanes: Elements of 32 bits in a vector; 1 for no vectors.
    """
    shape, last = nest.sink.shape, axes[-1]
    if len(nest.members) != 1 or not nest.shared.issuperset(axes) or lanes == 1:
        return None
    [(member, along)] = nest.members.items()
    names = {each.tie: variable.name() for each, variable in zip(along, member.variables, strict=True)}
    if member.role != "reduced" or last not in names:
        return None
    vectors = [loops for loops in member.loads if names[last] in loops]
    side = vector_of(shape[last], lanes)
    most = _SUMS_OF_AVX512 if lanes == _LANES_OF_AVX512 else _SUMS
    found: list[tuple[int, int, Tile]] = []
    for axis in axes[:-1]:
        if axis not in names or all(names[axis] in loops for loops in vectors):
            continue
        for results, count in itertools.product(range(2, min(MOST, shape[axis]) + 1), range(1, MOST + 1)):
            width = count * side
            if count * results <= most and width <= shape[last]:
                tiles = -(-shape[axis] // results) * -(-shape[last] // width)
                took = tiles * max(count * results, count + results, LATENCY)
                found.append((took, -count * results, Tile(axis, results, width)))
    return min(found, key=lambda each: each[:2])[2] if found else None


def vector_of(extent: int, lanes: int) -> int:
    """Return how long vectors along an axis are: a power of two that is no more than the axis has."""
    return min(lanes, 1 << (extent.bit_length() - 1))
