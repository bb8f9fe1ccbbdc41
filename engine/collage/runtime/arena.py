"""Place values with disjoint lifetimes over the same memory.

Offsets come from *greedy by size* (Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net
Inference", MLSys 2020 workshop, algorithm 3): the largest block first, each into the smallest gap that fits
between the blocks already placed that are alive at the same time. It is within a few percent of the lower bound
on real networks, and needs only lifetimes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from collage.devices.this_host import memory_bytes
from collage_core.contract import ALIGNMENT_BYTES
from collage_core.errors import MemoryNeededError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Memory needed from one step of a run to another, both included.

    Attributes:
        name: Unique among the blocks planned together.
        nbytes: Its size; may be 0.
        first: The step that writes it.
        last: The last step that reads it; `first` if none does.
    """

    name: str
    nbytes: int
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.nbytes < 0 or self.last < self.first:
            raise ValueError(f"block {self.name!r} has no size or ends before it starts")

    def alive_with(self, other: Block) -> bool:
        """Return whether both blocks are alive at some step; a step's inputs and outputs are alive together."""
        return self.first <= other.last and other.first <= self.last


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArenaPlan:
    """Offsets of all blocks in an arena.

    Attributes:
        offsets: Bytes from the start of the arena, by block name; multiples of the requested alignment.
        nbytes: Size of the arena.
    """

    offsets: Mapping[str, int]
    nbytes: int


def plan_arena(blocks: Iterable[Block], alignment: int = ALIGNMENT_BYTES) -> ArenaPlan:
    """Assign every block an offset so that blocks alive together never overlap.

    Args:
        blocks: Blocks of memory to place.
        alignment: Alignment of each block's offset, in bytes.

    Examples:
        >>> plan = plan_arena([
        ...     Block(name="a", nbytes=100, first=0, last=1),
        ...     Block(name="b", nbytes=64, first=1, last=2),
        ...     Block(name="c", nbytes=100, first=2, last=3),
        ... ])
        >>> plan.offsets
        {'a': 0, 'c': 0, 'b': 128}
        >>> plan.nbytes
        192
    """
    placed: list[tuple[int, int, Block]] = []  # offset, end, block; sorted by offset
    offsets: dict[str, int] = {}
    # ties by time and name: the same model gets the same arena
    for block in sorted(blocks, key=lambda block: (-block.nbytes, block.first, block.name)):
        if block.name in offsets:
            raise ValueError(f"two blocks are named {block.name!r}")
        size = -(-block.nbytes // alignment) * alignment
        offset = _smallest_gap(placed, block, size) if size else 0
        offsets[block.name] = offset
        if size:
            placed.append((offset, offset + size, block))
            placed.sort(key=lambda entry: entry[0])
    return ArenaPlan(offsets=offsets, nbytes=max((end for _, end, _ in placed), default=0))


def allocate(nbytes: int) -> np.ndarray[Any, Any]:
    """Allocate an aligned array of bytes; its content is undefined.

    Raises:
        MemoryNeededError: If this machine does not have that much memory, even if its kernel would overcommit.
    """
    if nbytes > (there := memory_bytes()):
        raise MemoryNeededError(nbytes, f"this machine has {there / 2**30:.1f} GiB")
    try:
        backing = np.empty(nbytes + ALIGNMENT_BYTES, np.uint8)
    except MemoryError as error:
        raise MemoryNeededError(nbytes, "so much is not free") from error
    skip = -backing.ctypes.data % ALIGNMENT_BYTES
    return backing[skip : skip + nbytes]


def _smallest_gap(placed: list[tuple[int, int, Block]], block: Block, size: int) -> int:
    best: tuple[int, int] | None = None  # size of the gap, offset
    free = 0
    for offset, end, other in placed:
        if not block.alive_with(other):
            continue
        if offset - free >= size and (best is None or offset - free < best[0]):
            best = (offset - free, free)
        free = max(free, end)
    return free if best is None else best[1]
