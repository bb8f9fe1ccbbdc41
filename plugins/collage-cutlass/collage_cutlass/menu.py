"""Tiles kernels are compiled with, and which of them is likely to be the best for a problem.

The tiles are a part of those CUTLASS's own generator makes for sm_80 (`cutlass_library/generator.py`, functions
`GenerateSM80_TensorOp_16816`, `_1688` and `GenerateSM80_Simt_f32`): whatever is there is known to compile.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from collage_cutlass.architectures import Architecture
from collage_cutlass.numbers import Numbers
from collage_cutlass.problem import Conv, Gemm, Matrices, Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """How a product is cut.

    Attributes:
        block: Rows, columns and depth that a block of threads computes at once.
        warps: Along how many of each it is cut into warps.
        stages: How many such depths are on their way from memory at once.
    """

    block: tuple[int, int, int]
    warps: tuple[int, int, int]
    stages: int

    @property
    def warp(self) -> tuple[int, int, int]:
        """What one warp computes."""
        (m, n, k), (by_m, by_n, by_k) = self.block, self.warps
        return (m // by_m, n // by_n, k // by_k)

    @property
    def name(self) -> str:
        """Of the variant.

        Examples:
            >>> Tile((128, 64, 32), (2, 2, 1), 6).name
            'tile128x64x32_warps2x2_stages6'
        """
        return f"tile{'x'.join(map(str, self.block))}_warps{self.warps[0]}x{self.warps[1]}_stages{self.stages}"

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory for operands."""
        m, n, k = self.block
        return self.stages * (m + n) * k * itemsize


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
    """Tiles for tensor cores: 64 bytes deep, and two that are twice as deep."""
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
    {"f16": _tensor(32), "bf16": _tensor(32), "tf32": _tensor(16), "f32": _SIMT}
)
"""By the name of the numbers."""

Shortlist = Callable[[Numbers, Gemm, Architecture], Sequence[tuple[int, int, int]]]
"""Blocks that somebody who knows the device likes best for a product, the best first; none if nobody does."""


def ranked(problem: Problem, numbers: Numbers, architecture: Architecture, shortlist: Shortlist) -> list[Tile]:
    """The tiles a device can run, the likeliest first.

    Args:
        problem: What is computed.
        numbers: How.
        architecture: Where.
        shortlist: What is asked first; tiles that it does not name follow, by waves of blocks and what each loads.
    """
    product = as_product(problem)
    fits = [each for each in TILES[numbers.name] if each.shared_bytes(numbers.itemsize) <= architecture.shared_bytes]
    liked = list(shortlist(numbers, product, architecture))
    places = {block: place for place, block in reversed(list(enumerate(liked)))}
    return sorted(fits, key=lambda each: (places.get(each.block, len(liked)), _work(each, product, architecture)))


def as_product(problem: Problem) -> Gemm:
    """A convolution as the product it comes to: pixels by filters, over channels and places of a filter."""
    if isinstance(problem, Gemm):
        return problem
    return _implicit(problem)


def _implicit(conv: Conv) -> Gemm:
    m, n, k = conv.n * conv.p * conv.q, conv.k, conv.c * conv.r * conv.s
    a, b, result = Matrices(k, 0), Matrices(k, 0, by_columns=True), Matrices(n, 0)
    return Gemm(m=m, n=n, k=k, batch=1, a=a, b=b, result=result)


_LOADED = 64
"""Products in the time that loading one row or column of a tile takes; a rough balance of tensor cores and memory."""


def _work(tile: Tile, product: Gemm, architecture: Architecture) -> float:
    m, n, _ = tile.block
    blocks = math.ceil(product.m / m) * math.ceil(product.n / n) * product.batch
    waves = math.ceil(blocks / architecture.processors)
    return waves * (m * n + _LOADED * (m + n))
