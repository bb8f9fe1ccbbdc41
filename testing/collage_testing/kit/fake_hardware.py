"""A fake device without its streams: memory that NumPy does not see, its own clocks, and a log.

Memory holds garbage at first and is never handed out twice, so a use after free is detected.
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
"""Value of every byte before the first write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One operation requested of a device or executed by it.

    Attributes:
        kind: `allocate`, `free`, `write`, `read`, `copy`, `kernel`, `capture` and `launch` when requested,
            `synchronise` when the host waits, `pageable` when a copy makes its caller wait, `ran` when a kernel runs.
        detail: Number of bytes, or a kernel's name.
    """

    kind: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class FakeMemory:
    """See `DeviceMemory`."""

    pointer: int
    nbytes: int


class FakeHardware:
    """State that all streams of a device share: its memory, its clocks, and the log of requests.

    Args:
        name: Device name; ends in its number.
        memory_bytes: Memory capacity.
        lost_after: Number of operations after which the device no longer answers; None for never.
        eager: Whether it executes everything at once, as early as a device may; otherwise as late as it may.
        launch_us: Host time of launching a kernel or a graph.
        cache_bytes: Size of the last-level cache that kernels read through; 0 for none.

    Attributes:
        log: Requests, in order.
        time: The device's clock, and the host's time spent in launches and waits.
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
        """Time of the device's clock, in microseconds."""
        return self.time.clock_us

    @property
    def freed(self) -> int:
        """Number of freed allocations."""
        return len(self._freed)

    def kinds(self, *wanted: str) -> list[str]:
        """Return the kinds of operations in the log, in order; only the wanted ones, if any are named."""
        return [operation.kind for operation in self.log if not wanted or operation.kind in wanted]

    def note(self, kind: str, detail: str = "") -> None:
        """Log an operation.

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
        """Register host memory as pinned, so that copies reach it directly."""
        self._pinned.append((array.ctypes.data, array.nbytes))

    def is_pinned(self, array: Array) -> bool:
        """Return whether an array lies in pinned memory."""
        start, end = array.ctypes.data, array.ctypes.data + array.nbytes
        return any(address <= start and end <= address + nbytes for address, nbytes in self._pinned)

    def view(self, pointer: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a view of the device's memory, for kernels that the stream is executing.

        Raises:
            DeviceUseError: If the stream executes nothing now, the memory was freed, or the range is not within one
                allocation.
        """
        if not self.executing:
            raise DeviceUseError(self.name, f"the host looks into its memory at {pointer:#x}")
        return self.peek(pointer, shape, dtype)

    def peek(self, pointer: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the same view without the check for a running kernel, for tests."""
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
    """An array on a fake device; stands for an array of another library."""

    device: FakeHardware
    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    keeps: Any = dataclasses.field(repr=False)

    @classmethod
    def of(cls, device: FakeHardware, array: Array) -> FakeArray:
        """Copy an array to the device, synchronously."""
        memory = device.allocate(array.nbytes)
        np.copyto(device.peek(memory.pointer, array.shape, array.dtype), array)
        return cls(device, memory.pointer, array.shape, array.dtype, memory)

    def get(self) -> Array:
        """Copy the current contents to the host, without waiting for work enqueued on the stream."""
        return self.device.peek(self.pointer, self.shape, self.dtype).copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_EXTENSION, int(self.device.name.rpartition(":")[2])

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory of a fake device is nobody else's")
