"""Memory of outputs: lent to whoever holds a result, and written again when the result is gone.

A kernel writes an output into a block. The caller gets an array over that block, not a copy. NumPy keeps the object
that exports an array's memory alive as long as the array, any view of it, or another library's tensor made from it.
So that object's end is the moment from which the block may be written again.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final

import numpy as np

from collage.runtime.arena import allocate
from collage_core.contract import TensorSpec

Array = np.ndarray[Any, Any]

LENT_BYTES: Final = 256 << 10
"""Least size of an output that is lent; smaller ones are copied.

Lending takes 2 us more than the copy of 16 KiB and 4 us less than that of 256 KiB, when the run is bound already; where
callers hold eight results for random times the two are equal there. Figures:
`docs/design/0026-run-hands-out-what-kernels-wrote.md`.
"""
IDLE_BLOCKS: Final = 2
"""Blocks of an output that are kept although no caller holds them.

A loop that keeps its last result while the next is computed needs one. A consumer that releases two results between
two runs needs the other, or the next run but one writes into fresh memory, which costs a page fault every 4 KiB.
"""


class Block:
    """Memory of one output of one run.

    Args:
        nbytes: Size, above 0.

    Attributes:
        address: Address of the first byte, a multiple of `ALIGNMENT_BYTES`.
        nbytes: Size.
    """

    __slots__ = ("__weakref__", "_memory", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self._memory = allocate(nbytes)
        self.address = int(self._memory.ctypes.data)
        self.nbytes = nbytes


class Blocks:
    """Blocks of one output; sessions of several sizes share those of the largest.

    Results end in any thread at any time, also during garbage collection inside of another call. So what happens then
    takes no lock: it is one `append` to a deque, which is atomic.

    Args:
        nbytes: Size of each, above 0.

    Attributes:
        nbytes: As given.
        idle: Those that nobody holds.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.idle: deque[Block] = deque(maxlen=IDLE_BLOCKS)  # a full one drops the oldest block at its other end
        self._all: weakref.WeakSet[Block] = weakref.WeakSet()

    @property
    def live_bytes(self) -> int:
        """Size of all blocks, lent and idle."""
        return len(self._all) * self.nbytes  # not a loop: another thread may make one

    def make(self) -> Block:
        """Return a new block; not thread-safe.

        Raises:
            MemoryNeededError: If there is no memory for it.
        """
        block = Block(self.nbytes)
        self._all.add(block)
        return block


class Lender:
    """Lends the memory of one output.

    Args:
        spec: The output; planned, and not empty.
        blocks: What it lends, at least as large; blocks of its own if None.
    """

    def __init__(self, spec: TensorSpec, blocks: Blocks | None = None) -> None:
        self._dtype = spec.numpy_dtype
        self._shape = spec.static_shape
        self._nbytes = spec.nbytes
        self._blocks = Blocks(spec.nbytes) if blocks is None else blocks
        self._idle = self._blocks.idle

    @property
    def live_bytes(self) -> int:
        """Size of all blocks, lent and idle."""
        return self._blocks.live_bytes

    def take(self) -> Block:
        """Return a block that nobody holds; not thread-safe.

        Raises:
            MemoryNeededError: If a new block is needed and there is no memory for it.
        """
        try:
            return self._idle.pop()  # the one whose memory was touched last
        except IndexError:
            return self._blocks.make()

    def give_back(self, block: Block) -> None:
        """Keep a block that was taken and not lent."""
        self._idle.append(block)

    def lend(self, block: Block) -> Array:
        """Return the output in a block as an array; the block comes back when nothing refers to it any more."""
        array: Array = np.asarray(_Lent(block, self._nbytes, self._idle))
        return array.view(self._dtype).reshape(self._shape)


def array_at(address: int, spec: TensorSpec) -> Array:
    """Return a planned value's array over memory that is not kept alive, presented as writeable."""
    array: Array = np.asarray(_Exported(address, spec.nbytes))
    return array.view(spec.numpy_dtype).reshape(spec.static_shape)


class _Exported:
    """Memory as bytes for NumPy, which does not know every element type in this protocol."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}


class _Lent(_Exported):
    """A block in a caller's hands."""

    __slots__ = ("_block", "_idle")

    def __init__(self, block: Block, nbytes: int, idle: deque[Block]) -> None:
        super().__init__(block.address, nbytes)
        self._block = block
        self._idle = idle

    def __del__(self) -> None:
        self._idle.append(self._block)
