"""Tiles that kernels are compiled with, and a ranking of them for a problem.

Those of CUTLASS 2.x are a subset of what its own generator makes for sm_80 (`cutlass_library/generator.py`,
functions `GenerateSM80_TensorOp_16816`, `_1688` and `GenerateSM80_Simt_f32`), all of which are known to
compile. Those of 3.x are the ones nvidia-matmul-heuristics names most often for an H100, with schedules
after CUTLASS's documentation ("Efficient GEMM in CUDA", "Hopper Warp Specialization"): two groups of warps
share a tile of 128 rows or more (cooperative), or alternate with tiles of their own (ping-pong).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from collage_cutlass.architectures import Architecture
from collage_cutlass.numbers import NUMBERS, Numbers
from collage_cutlass.problem import Conv, Gemm, Matrices, Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """Tile shape of a product in CUTLASS 2.x.

    Attributes:
        block: Rows, columns and depth that a thread block computes at once.
        warps: Number of warps along rows, columns and depth.
        stages: Number of depth slices in flight from memory at once.
    """

    block: tuple[int, int, int]
    warps: tuple[int, int, int]
    stages: int

    @property
    def warp(self) -> tuple[int, int, int]:
        """Rows, columns and depth that one warp computes."""
        (m, n, k), (by_m, by_n, by_k) = self.block, self.warps
        return (m // by_m, n // by_n, k // by_k)

    @property
    def name(self) -> str:
        """Name of the variant.

        Examples:
            >>> Tile((128, 64, 32), (2, 2, 1), 6).name
            'tile128x64x32_warps2x2_stages6'
        """
        return f"tile{_times(self.block)}_warps{_times(self.warps[:2])}_stages{self.stages}"

    def shared_bytes(self, itemsize: int) -> int:
        """Return the shared memory for operands, in bytes."""
        m, n, k = self.block
        return self.stages * (m + n) * k * itemsize


@dataclasses.dataclass(frozen=True, slots=True)
class HopperTile:
    """Tile shape of a product in CUTLASS 3.x, which chooses as many stages as fit in shared memory.

    Attributes:
        block: Rows, columns and depth that a thread block computes at once.
        cluster: Blocks along rows and columns that share loaded data.
        schedule: Schedule of the groups of warps that multiply: `Cooperative` or `Pingpong`.
    """

    block: tuple[int, int, int]
    cluster: tuple[int, int]
    schedule: str

    @property
    def name(self) -> str:
        """Name of the variant.

        Examples:
            >>> HopperTile((128, 256, 64), (2, 1), "Cooperative").name
            'tma128x256x64_cluster2x1_cooperative'
        """
        return f"tma{_times(self.block)}_cluster{_times(self.cluster)}_{self.schedule.lower()}"


AnyTile: TypeAlias = Tile | HopperTile


def _times(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents))


_SHAPES = (
    ((128, 128), (2, 2)),
    ((256, 128), (4, 2)),
    ((128, 256), (2, 4)),
    ((128, 64), (2, 2)),
    ((64, 128), (2, 2)),
    ((64, 64), (2, 2)),
)
_STAGES = {(128, 128): 4, (256, 128): 3, (128, 256): 3, (128, 64): 6, (64, 128): 6, (64, 64): 10}


def _tensor(depth: int) -> tuple[Tile, ...]:
    """Return tiles for tensor cores: 64 bytes deep, and two that are twice as deep."""
    usual = [Tile((m, n, depth), (*warps, 1), _STAGES[m, n]) for (m, n), warps in _SHAPES]
    return (*usual, Tile((128, 128, 2 * depth), (2, 2, 1), 3), Tile((64, 64, 2 * depth), (2, 2, 1), 5))


_SIMT = (
    Tile((128, 128, 8), (4, 2, 1), 5),
    Tile((256, 128, 8), (4, 2, 1), 5),
    Tile((128, 64, 8), (2, 2, 1), 5),
    Tile((64, 128, 8), (2, 2, 1), 5),
    Tile((64, 64, 8), (2, 1, 1), 5),
)

TILES: Mapping[str, tuple[Tile, ...]] = MappingProxyType(
    {name: _tensor(64 // each.itemsize) if each.by_tensor_cores else _SIMT for name, each in NUMBERS.items()}
)
"""Tiles of CUTLASS 2.x, by `Numbers.name`."""

_HOPPER = (
    ((256, 128), (1, 2), "Cooperative"),
    ((128, 256), (2, 1), "Cooperative"),
    ((128, 128), (2, 1), "Cooperative"),
    ((64, 128), (1, 2), "Pingpong"),
    ((64, 64), (2, 1), "Pingpong"),
)

HOPPER_TILES: Mapping[str, tuple[HopperTile, ...]] = MappingProxyType(
    {
        name: tuple(
            HopperTile((m, n, 128 // each.itemsize), cluster, schedule) for (m, n), cluster, schedule in _HOPPER
        )
        for name, each in NUMBERS.items()
        if each.by_tensor_cores
    }
)
"""Tiles of CUTLASS 3.x for products, 128 bytes deep, by `Numbers.name`."""

Shortlist: TypeAlias = Callable[[Numbers, Gemm, Architecture, type[AnyTile]], Sequence[tuple[int, int, int]]]
"""Returns the blocks that a device-specific heuristic ranks highest for a product among tiles of a kind.

The best come first; the result is empty without such a heuristic.
"""


def ranked(
    problem: Problem, numbers: Numbers, architecture: Architecture, shortlist: Shortlist, *, in_a_hurry: bool = False
) -> list[AnyTile]:
    """Return the tiles a device can run, the best guess first.

    Where both kinds are available they alternate: which is faster for a shape has to be measured, and a small
    product does not amortise the start-up cost of a large tile.

    Args:
        problem: Problem to compute.
        numbers: Types of the multiplication.
        architecture: Architecture of the device.
        shortlist: Returns the tiles to rank first; others follow, by waves of blocks and the data each block loads.
        in_a_hurry: Whether tiles that take long to compile come last.
    """
    product = as_product(problem)
    small, large = tiles_of(Tile, numbers, architecture), list[AnyTile]()
    # nothing says that TMA steps from one matrix of a batch to the next by nothing
    repeated = product.batch > 1 and 0 in (product.a.stride, product.b.stride)
    if isinstance(problem, Gemm) and not repeated:
        large = tiles_of(HopperTile, numbers, architecture, by_columns=product.b.by_columns)
    for tiles in filter(None, (large, small)):
        liked = list(shortlist(numbers, product, architecture, type(tiles[0])))
        places = {block: place for place, block in reversed(list(enumerate(liked)))}
        tiles.sort(key=lambda each: (places.get(each.block, len(liked)), _work(each, product, architecture)))
    if in_a_hurry:
        return [*small, *large]
    return [each for pair in itertools.zip_longest(large, small) for each in pair if each is not None]


def tiles_of(
    kind: type[AnyTile], numbers: Numbers, architecture: Architecture, *, by_columns: bool = False
) -> list[AnyTile]:
    """Return all tiles of a kind that a device can run.

    Args:
        kind: Tiles of CUTLASS 2.x, or of 3.x for products.
        numbers: Types of the multiplication.
        architecture: Architecture of the device.
        by_columns: Whether a product's second factor is column-major. `wgmma` supports factors of four bytes
            only if both are contiguous along k (PTX ISA, "wgmma.mma_async", on the shared memory layout).
    """
    if kind is Tile:
        fits = architecture.shared_bytes
        return [each for each in TILES[numbers.name] if each.shared_bytes(numbers.itemsize) <= fits]
    along_k = by_columns or numbers.itemsize == 2
    return [*HOPPER_TILES.get(numbers.name, ())] if architecture.wgmma and along_k else []


def as_product(problem: Problem) -> Gemm:
    """Return the equivalent product of a convolution: pixels by filters, over channels and filter positions."""
    if isinstance(problem, Gemm):
        return problem
    return _implicit(problem)


def _implicit(conv: Conv) -> Gemm:
    m, n, k = conv.n * conv.p * conv.q, conv.k, conv.c * conv.r * conv.s
    a, b, result = Matrices(k, 0), Matrices(k, 0, by_columns=True), Matrices(n, 0)
    return Gemm(m=m, n=n, k=k, batch=1, a=a, b=b, result=result)


_LOADED = 64
"""Cost of loading one row or column of a tile, in products; a rough balance of tensor cores and memory."""


def _work(tile: AnyTile, product: Gemm, architecture: Architecture) -> float:
    m, n, _ = tile.block
    blocks = math.ceil(product.m / m) * math.ceil(product.n / n) * product.batch
    waves = math.ceil(blocks / architecture.processors)
    return waves * (m * n + _LOADED * (m + n))
