"""What registers hold: vectors of an axis, and sums side by side, of one matrix product or of overlapping windows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from collage_halide.nests import Nest
from collage_halide.stages import Stage, Window

LATENCY = 8
"""Multiplications that a core has under way at a time."""
MOST = 16
"""Results, and vectors of each, beyond which no register is left."""
_REGISTERS, _REGISTERS_OF_AVX512 = 16, 32
_SUMS, _SUMS_OF_AVX512 = 12, 20
"""Most of them that hold sums."""
_LANES_OF_AVX512 = 16
_MISALIGNED = 2
"""Time of a load across two lines of the cache, as of most vectors in windows, in multiplications."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """Sums that stay in registers together.

    Attributes:
        member: What adds up.
        axis: Axis of the sink along which what is loaded in vectors is used several times: it stays the same, as along
            channels of a convolution, or windows overlap.
        results: Elements along it.
        width: Elements along the innermost axis, a multiple of a vector.
        window: The windows that overlap; None if what is loaded stays the same.
    """

    member: Stage
    axis: int
    results: int
    width: int
    window: Window | None = None


def tile_of(nest: Nest, axes: Sequence[int], lanes: int) -> Tile | None:
    """Return which sums of a nest stay in registers together; None if no two of them load the same vectors.

    Of all tiles that fit, the one is taken with which the whole takes the least time, the larger of equals: a core
    begins one multiplication and one load at a time, and the next addition to a sum waits for the one before.

    Args:
        nest: The nest.
        axes: Axes of its sink with more than one element, or the innermost one.
        lanes: Elements of 32 bits in a vector; 1 for no vectors.
    """
    summing = [member for member in nest.members if member.role == "reduced"]
    if lanes == 1 or len(summing) != 1:
        return None
    [member] = summing
    last, others = axes[-1], [each for each in nest.members if each is not member]
    ties = [each.tie for each in nest.members[member]]
    if last not in ties or any(stage is member for other in others for stage, _ in other.reads):
        return None
    found = [] if others or not nest.shared.issuperset(axes) else _of_same_vectors(nest, member, axes, lanes)
    found = found or _of_windows(nest, member, axes, lanes)
    return min(found, key=lambda each: each[:2])[2] if found else None


def _of_same_vectors(nest: Nest, member: Stage, axes: Sequence[int], lanes: int) -> list[tuple[int, int, Tile]]:
    """Return tiles along axes on which vectors do not depend, the time each takes, and a smaller number the larger.

    Beside the sums there is room for all vectors that are loaded, for LLVM loads these first, and for one weight.
    """
    shape, last = nest.shape, axes[-1]
    names = {each.tie: at.name() for each, at in zip(nest.members[member], member.variables, strict=True)}
    vectors = [loops for loops in member.loads if names[last] in loops]
    side = vector_of(shape[last], lanes)
    most = _SUMS_OF_AVX512 if lanes == _LANES_OF_AVX512 else _SUMS
    registers = _REGISTERS_OF_AVX512 if lanes == _LANES_OF_AVX512 else _REGISTERS
    found: list[tuple[int, int, Tile]] = []
    for axis in axes[:-1]:
        if axis not in names or all(names[axis] in loops for loops in vectors):
            continue
        for results, count in itertools.product(range(2, min(MOST, shape[axis]) + 1), range(1, MOST + 1)):
            width = count * side
            if count * results <= most and count * (results + 1) < registers and width <= shape[last]:
                tiles = -(-shape[axis] // results) * -(-shape[last] // width)
                took = tiles * max(count * results, count + results, LATENCY)
                found.append((took, -count * results, Tile(member, axis, results, width)))
    return found


def _of_windows(nest: Nest, member: Stage, axes: Sequence[int], lanes: int) -> list[tuple[int, int, Tile]]:
    """Return tiles along the axis before the innermost one, if windows along it overlap, as `_of_same_vectors`."""
    if len(axes) < 2:
        return []
    shape, axis, last = nest.shape, axes[-2], axes[-1]
    ties = [each.tie for each in nest.members[member]]
    window = member.windows.get(ties.index(axis)) if axis in ties else None
    if window is None or not window.overlaps:
        return []
    side = vector_of(shape[last], lanes)
    registers = _REGISTERS_OF_AVX512 if lanes == _LANES_OF_AVX512 else _REGISTERS
    found: list[tuple[int, int, Tile]] = []
    for results, count in itertools.product(range(2, min(MOST, shape[axis]) + 1), range(1, MOST + 1)):
        width = count * side
        if 2 * count * results < registers and width <= shape[last]:  # sums, and as much of what they share
            tiles = -(-shape[axis] // results) * -(-shape[last] // width)
            loads = count * window.read(results) * _MISALIGNED + window.extent
            took = tiles * max(count * results * window.extent, loads, LATENCY * window.extent)
            found.append((took, -count * results, Tile(member, axis, results, width, window)))
    return found


def vector_of(extent: int, lanes: int) -> int:
    """Return how long vectors along an axis are: a power of two that is no more than the axis has."""
    return min(lanes, 1 << (extent.bit_length() - 1))
