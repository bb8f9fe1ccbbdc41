"""Tile shapes that divide a loop nest into programs: the variants of a kernel, best guess first."""

from __future__ import annotations

import dataclasses
import math

from collage_triton.nest import Nest, walk

_PERSISTENT = 8192
"""Longest row that is held in registers: 8192 float32 are 64 registers of each thread of 4 warps, or 16 of 16."""
_PROGRAMS = 100
"""Fewest programs of a product for its first variant, on a device with about a hundred multiprocessors."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """One arrangement of a tile.

    Attributes:
        outer: Indices of axis 0 in a program, a power of two.
        inner: Indices of axis 1 that are processed at once, a power of two; longer rows are looped over.
        warps: Warps of 32 threads in a program.
        depth: For a product, slice of the summed extent that is multiplied at once; 0 otherwise.
        stages: Loads in flight in a loop.
    """

    outer: int
    inner: int
    warps: int
    depth: int = 0
    stages: int = 2

    @property
    def name(self) -> str:
        """Name of the variant.

        Examples:
            >>> Tile(4, 1024, 8).name
            'x4_r1024_w8'
        """
        depth = f"_k{self.depth}" if self.depth else ""
        return f"x{self.outer}_r{self.inner}{depth}_w{self.warps}"


def tiles(nest: Nest) -> tuple[Tile, ...]:
    """Return the arrangements to try.

    Args:
        nest: The loop nest.
    """
    if nest.form == "product":
        return _of_products(nest)
    terms = walk([store.value for store in nest.stores])
    free = [var for term in terms for var in term.free if var.axis == 1]
    rows = max((var.extent for var in free + [store.inner for store in nest.stores]), default=1)
    outer = max((store.outer.extent for store in nest.stores), default=1)
    if nest.form == "pointwise":
        wanted = [_block(outer, size, warps) for size, warps in ((1024, 4), (512, 4), (2048, 8), (256, 2), (4096, 8))]
    else:
        wanted = []
        whole = power_of_two(rows)
        if whole <= _PERSISTENT:
            for elements in (2048, 4096, 1024, 8192):
                block = min(power_of_two(outer), max(1, elements // whole), 128)
                wanted.append(Tile(block, whole, _warps(block * whole)))
        if whole > 2048:
            wanted += [Tile(1, size, _warps(size)) for size in (4096, 2048, 1024)]
    return tuple(dict.fromkeys(wanted))


def _of_products(nest: Nest) -> tuple[Tile, ...]:
    """Return the tiles to try for a product.

    The largest tile that gives a program for each of some hundred multiprocessors comes first, then the others.
    """
    [store] = nest.stores
    batch = nest.batch.extent if nest.batch is not None else 1
    inner = max(term.data[0][0].extent for term in walk([store.value]) if term.op == "dot")  # type: ignore[index]

    def fitted(outer: int, columns: int, depth: int, warps: int) -> Tile:
        """Fit a tile to the problem; `tl.dot` supports no tile smaller than 16 by 16."""
        sizes = ((outer, store.outer.extent), (columns, store.inner.extent), (depth, inner))
        a, b, c = (min(size, max(16, power_of_two(extent))) for size, extent in sizes)
        return Tile(a, b, warps if a * b > 1024 else 2, c, 3)

    def programs(tile: Tile) -> int:
        return batch * math.ceil(store.outer.extent / tile.outer) * math.ceil(store.inner.extent / tile.inner)

    sizes = ((128, 128, 32, 8), (128, 64, 32, 4), (64, 128, 32, 4), (64, 64, 32, 4), (32, 64, 64, 4), (16, 64, 64, 2))
    wanted = [fitted(*each) for each in sizes]
    best = next((tile for tile in wanted if programs(tile) >= _PROGRAMS), wanted[-2])
    return tuple(dict.fromkeys([best, *wanted]))


def power_of_two(extent: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << max(0, extent - 1).bit_length()


def _block(extent: int, size: int, warps: int) -> Tile:
    return Tile(min(size, max(32, power_of_two(extent))), 1, warps)


def _warps(elements: int) -> int:
    """Return the number of warps, from 1 to 16: one for each 256 elements, 8 per thread."""
    return min(16, max(1, elements // 256))
