"""A fake device without its streams: memory NumPy does not see, clocks of its own, and a log.

Memory holds garbage at first and is never given out twice, so what is used after it was freed is seen.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import weakref
from typing import Any

import numpy as np

from collage_core.contract import DEVICE_ALIGNMENT_BYTES
from collage_core.errors import DeviceLostError, DeviceMemoryError, DeviceUseError
from collage_testing.kit.fake_time import FakeTime

Array = np.ndarray[Any, Any]

DLPACK_EXTENSION = 12  # kDLExtDev in dlpack.h
GARBAGE = 0xA5
"""What each byte is before anything is written there."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One thing a device was asked for or did.

    Attributes:
        kind: `allocate`, `free`, `write`, `read`, `copy`, `kernel`, `capture` and `launch` when asked for,
            `synchronise` when somebody waits, `pageable` when a copy makes its caller wait, `ran` when a kernel runs.
        detail: Bytes, or a kernel's name.
    """

    kind: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class FakeMemory:
    """See `DeviceMemory`."""

    pointer: int
    nbytes: int


class FakeHardware:
    """What all streams of a device share: its memory, its clocks, and the log of what it is asked.

    Args:
        name: Its name; ends in its number.
        memory_bytes: What it has.
        lost_after: Operations after which it no longer answers; None for never.
        eager: Whether it does everything at once, as early as a device may; otherwise it does so as late as it may.
        launch_us: What launching a kernel or a graph takes the host.
        cache_bytes: Size of its last-level cache, which what kernels read goes through; 0 for none.

    Attributes:
        log: What was asked of it, in order.
        time: Its clock, and the host's as far as launches take it.
        allocated: Bytes in use.
    """

    def __init__(
        self,
        name: str = "fake:0",
        *,
        memory_bytes: int = 1 << 30,
        lost_after: int | None = None,
        eager: bool = False,
        launch_us: float = 0.0,
        cache_bytes: int = 0,
    ) -> None:
        self.name = name
        self.eager = eager
        self.log: list[Operation] = []
        self.time = FakeTime(launch_us=launch_us, cache_bytes=cache_bytes)
        self.allocated = 0
        self.memory_bytes = memory_bytes
        self.lost_after = lost_after
        self.executing = False
        self._asked = 0
        self._blocks: list[tuple[int, int, Any]] = []  # address, bytes, what holds them; freed ones stay
        self._freed: set[int] = set()
        self._pinned: list[tuple[int, int]] = []

    @property
    def clock_us(self) -> float:
        """Its time."""
        return self.time.clock_us

    @property
    def freed(self) -> int:
        """How many pieces of memory were given back."""
        return len(self._freed)

    def kinds(self, *wanted: str) -> list[str]:
        """Kinds of operations in the log, in order; only those wanted, if some are named."""
        return [operation.kind for operation in self.log if not wanted or operation.kind in wanted]

    def note(self, kind: str, detail: str = "") -> None:
        """Writes an operation down.

        Raises:
            DeviceLostError: If the device is lost.
        """
        self._asked += 1
        if self.lost_after is not None and self._asked > self.lost_after:
            raise DeviceLostError(self.name, "it does not answer any more")
        self.log.append(Operation(kind, detail))

    def allocate(self, nbytes: int) -> FakeMemory:
        """See `DeviceStream.allocate`."""
        self.note("allocate", str(nbytes))
        if self.allocated + nbytes > self.memory_bytes:
            free = self.memory_bytes - self.allocated
            raise DeviceMemoryError(self.name, f"{nbytes} bytes were asked for, {free} of {self.memory_bytes} are free")
        held = ctypes.create_string_buffer(bytes([GARBAGE]) * (nbytes + 2 * DEVICE_ALIGNMENT_BYTES))
        pointer = -(-ctypes.addressof(held) // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
        self._blocks.append((pointer, nbytes, held))
        self.allocated += nbytes
        memory = FakeMemory(pointer, nbytes)
        weakref.finalize(memory, self._free, pointer, nbytes)
        return memory

    def _free(self, pointer: int, nbytes: int) -> None:
        self.log.append(Operation("free", str(nbytes)))
        self._freed.add(pointer)
        self.allocated -= nbytes

    def pin(self, array: Array) -> None:
        """Notes memory of the host that copies reach without a detour."""
        self._pinned.append((array.ctypes.data, array.nbytes))

    def is_pinned(self, array: Array) -> bool:
        """Whether an array lies in such memory."""
        start, end = array.ctypes.data, array.ctypes.data + array.nbytes
        return any(address <= start and end <= address + nbytes for address, nbytes in self._pinned)

    def view(self, pointer: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Its memory as kernels see it, while the stream runs them.

        Raises:
            DeviceUseError: If the stream runs nothing now, the memory was freed, or it is not all of one piece.
        """
        if not self.executing:
            raise DeviceUseError(self.name, f"the host looks into its memory at {pointer:#x}")
        return self.peek(pointer, shape, dtype)

    def peek(self, pointer: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """The same whoever asks, for tests."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        for start, size, _ in reversed(self._blocks):  # the latest is the likeliest
            if start <= pointer and pointer + nbytes <= start + size:
                if start in self._freed:
                    raise DeviceUseError(self.name, f"{pointer:#x} is used after it was freed")
                raw = (ctypes.c_char * nbytes).from_address(pointer)
                found: Array = np.frombuffer(raw, np.uint8).view(dtype).reshape(shape)
                return found
        raise DeviceUseError(self.name, f"{nbytes} bytes at {pointer:#x} are not its own")


@dataclasses.dataclass(frozen=True, eq=False)
class FakeArray:
    """An array on a fake device: what another library's would be to the runtime."""

    device: FakeHardware
    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    keeps: Any = dataclasses.field(repr=False)

    @classmethod
    def of(cls, device: FakeHardware, array: Array) -> FakeArray:
        """A copy of an array there, made at once."""
        memory = device.allocate(array.nbytes)
        np.copyto(device.peek(memory.pointer, array.shape, array.dtype), array)
        return cls(device, memory.pointer, array.shape, array.dtype, memory)

    def get(self) -> Array:
        """A copy of what it holds now, whatever the stream has yet to do."""
        return self.device.peek(self.pointer, self.shape, self.dtype).copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_EXTENSION, int(self.device.name.rpartition(":")[2])

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory of a fake device is nobody else's")
