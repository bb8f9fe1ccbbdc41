"""A device for tests: memory NumPy does not see, a stream that does nothing before it has to, and no mercy.

What is enqueued runs only when somebody waits for the stream, so a wait that is missing shows as stale data. Memory
holds garbage at first and is never given out twice, so what is used after it was freed is seen. Copies from pinned
memory read it when they run, not when they are enqueued. Its clock is its own: every operation says how long it takes,
and where a launch is said to take the host time, or memory to have a cache, they do (`fake_time.py`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collage_core.contract import ALIGNMENT_BYTES, DEVICE_ALIGNMENT_BYTES, Buffer, TensorSpec
from collage_core.device import Event
from collage_core.errors import (
    DeviceCaptureError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DeviceUseError,
    FeedError,
)
from collage_core.testing.fake_time import FakeTime, Range, copy_us

Array = np.ndarray[Any, Any]
Work = Callable[[], None]

_DLPACK_EXTENSION = 12  # kDLExtDev in dlpack.h
_GARBAGE = 0xA5

_handles = itertools.count(0x5000)
_streams: weakref.WeakValueDictionary[int, FakeStream] = weakref.WeakValueDictionary()


def stream_of(handle: int | None) -> FakeStream:
    """The stream of a handle, as a driver would find it.

    Raises:
        DeviceUseError: If there is none.
    """
    stream = None if handle is None else _streams.get(handle)
    if stream is None:
        raise DeviceUseError("fake", f"{handle} is no stream of it")
    return stream


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


class FakeDevice:
    """The device all streams share.

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

    def open(self, name: str) -> FakeStream:
        """A stream of it, as `OpenDevice` gives one.

        Raises:
            DeviceUnavailableError: If it has another name.
        """
        if name != self.name:
            raise DeviceUnavailableError(name, f"this is {self.name}")
        return FakeStream(self)

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
        held = ctypes.create_string_buffer(bytes([_GARBAGE]) * (nbytes + 2 * DEVICE_ALIGNMENT_BYTES))
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


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class FakeMemory:
    """See `DeviceMemory`."""

    pointer: int
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Enqueued:
    """Something a stream has yet to do; a kernel has a name."""

    work: Work
    us: float
    name: str = ""
    asked_us: float = 0.0
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()


class FakeStream:
    """A stream of a fake device; see `DeviceStream`.

    Args:
        device: The device.
    """

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.handle = next(_handles)
        self._queue: list[_Enqueued] = []
        self._captured: list[_Enqueued] | None = None
        _streams[self.handle] = self

    @property
    def name(self) -> str:
        """See `DeviceStream.name`."""
        return self.device.name

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """See `DeviceStream.dlpack_device`."""
        return _DLPACK_EXTENSION, int(self.name.rpartition(":")[2])

    @property
    def cache_bytes(self) -> int:
        """See `DeviceStream.cache_bytes`."""
        return self.device.time.cache_bytes

    @property
    def free_bytes(self) -> int:
        """See `DeviceStream.free_bytes`."""
        return self.device.memory_bytes - self.device.allocated

    def another(self) -> FakeStream:
        """See `DeviceStream.another`."""
        return FakeStream(self.device)

    def activate(self) -> None:
        """See `DeviceStream.activate`."""

    def allocate(self, nbytes: int) -> FakeMemory:
        """See `DeviceStream.allocate`."""
        self._not_captured("allocates")
        return self.device.allocate(nbytes)

    def allocate_host(self, nbytes: int) -> Array:
        """See `DeviceStream.allocate_host`."""
        self._not_captured("allocates")
        raw = np.full(nbytes + ALIGNMENT_BYTES, _GARBAGE, np.uint8)
        self.device.pin(raw)
        skip = -raw.ctypes.data % ALIGNMENT_BYTES
        return raw[skip : skip + nbytes]

    def enqueue(
        self, name: str, work: Work, *, us: float = 1.0, reads: Sequence[Range] = (), writes: Sequence[Range] = ()
    ) -> None:
        """What launching a kernel comes to.

        Args:
            name: The kernel's name in the log.
            work: What it does; `FakeDevice.view` gives it memory.
            us: How long it takes by the device's clock.
            reads: Addresses and sizes of what it reads; what is not in the device's cache takes longer.
            writes: Likewise of what it writes.
        """
        if self._captured is None:
            self.device.time.launch()
        what = _Enqueued(work=work, us=us, name=name, reads=tuple(reads), writes=tuple(writes))
        self._put("kernel", name, what)

    def write(self, pointer: int, source: Array) -> None:
        """See `DeviceStream.write`."""
        if not self.device.is_pinned(source):
            self._not_captured("copies from memory that is not pinned")
            source = source.copy()
        nbytes = source.nbytes
        moved = _Enqueued(work=lambda: self._move(pointer, source), us=copy_us(nbytes), writes=((pointer, nbytes),))
        self._put("write", str(nbytes), moved)

    def _move(self, pointer: int, source: Array) -> None:
        np.copyto(self.device.view(pointer, source.shape, source.dtype), source)

    def read(self, target: Array, pointer: int) -> None:
        """See `DeviceStream.read`."""
        pageable = not self.device.is_pinned(target)
        if pageable:
            self._not_captured("copies into memory that is not pinned")

        def work() -> None:
            np.copyto(target, self.device.view(pointer, target.shape, target.dtype))

        self._put("read", str(target.nbytes), _Enqueued(work=work, us=copy_us(target.nbytes)))
        if pageable:
            self.device.note("pageable")
            self._run()
            self.device.time.wait()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """See `DeviceStream.copy`."""

        def work() -> None:
            place = self.device.view(target, (nbytes,), np.uint8)
            np.copyto(place, self.device.view(source, (nbytes,), np.uint8))

        self._put("copy", str(nbytes), _Enqueued(work=work, us=copy_us(nbytes) / 10, writes=((target, nbytes),)))

    def synchronise(self) -> None:
        """See `DeviceStream.synchronise`."""
        self._not_captured("waits for the stream")
        self.device.note("synchronise")
        self._run()
        self.device.time.wait()

    def event(self) -> FakeEvent:
        """See `DeviceStream.event`."""
        return FakeEvent(self)

    def capture(self, enqueue: Work) -> FakeGraph:
        """See `DeviceStream.capture`."""
        self._not_captured("captures within a capture")
        self.device.note("capture")
        captured: list[_Enqueued] = []
        self._captured = captured
        try:
            enqueue()
        finally:
            self._captured = None
        return FakeGraph(self, captured)

    def taken(self, spec: TensorSpec, array: Any) -> Buffer:
        """See `DeviceStream.taken`."""
        if not isinstance(array, FakeArray) or array.device is not self.device:
            raise FeedError(spec.name, f"bind an array of {self.name}, not {type(array).__name__}")
        if array.dtype != spec.numpy_dtype or array.shape != spec.static_shape:
            wanted = f"{spec.numpy_dtype}{list(spec.static_shape)}"
            raise FeedError(spec.name, f"bind an array of {wanted}; got {array.dtype}{list(array.shape)}")
        return Buffer.at(spec, device=self.name, pointer=array.pointer, keeps=array)

    def shown(self, buffer: Buffer) -> FakeArray:
        """See `DeviceStream.shown`."""
        spec = buffer.spec
        return FakeArray(self.device, buffer.pointer, spec.static_shape, np.dtype(spec.numpy_dtype), buffer)

    def append(self, work: Sequence[_Enqueued]) -> None:
        """Enqueues what was captured."""
        self._not_captured("launches a graph")
        self.device.time.launch()
        asked_us = self.device.time.host_us
        self._queue += [dataclasses.replace(each, asked_us=asked_us) for each in work]
        if self.device.eager:
            self._run()

    def _put(self, kind: str, detail: str, what: _Enqueued) -> None:
        self.device.note(kind, detail)
        if self._captured is not None:
            self._captured.append(what)
            return
        self._queue.append(dataclasses.replace(what, asked_us=self.device.time.host_us))
        if self.device.eager:
            self._run()

    def _not_captured(self, what: str) -> None:
        if self._captured is not None:
            raise DeviceCaptureError(self.name, f"a call {what} while it is captured")

    def _run(self) -> None:
        queue, self._queue = self._queue, []
        device = self.device
        for each in queue:
            if each.name:
                device.note("ran", each.name)
            device.time.spend(each.us, each.asked_us, each.reads, each.writes)
            device.executing = True
            try:
                each.work()
            finally:
                device.executing = False


class FakeGraph:
    """See `DeviceGraph`."""

    def __init__(self, stream: FakeStream, work: list[_Enqueued]) -> None:
        self._stream = stream
        self._work = work

    def launch(self) -> None:
        """See `DeviceGraph.launch`."""
        self._stream.device.note("launch", str(len(self._work)))
        self._stream.append(self._work)


class FakeEvent:
    """See `Event`."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self._at: float | None = None

    def record(self) -> None:
        """See `Event.record`."""
        self._at = None
        self._stream._put("event", "", _Enqueued(work=self._reach, us=0.0))

    def _reach(self) -> None:
        self._at = self._stream.device.clock_us

    def elapsed_us(self, earlier: Event) -> float:
        """See `Event.elapsed_us`."""
        if not isinstance(earlier, FakeEvent) or self._at is None or earlier._at is None:
            raise DeviceUseError(self._stream.name, "the time between events it has not reached is asked for")
        return self._at - earlier._at


@dataclasses.dataclass(frozen=True, eq=False)
class FakeArray:
    """An array on a fake device: what another library's would be to the runtime."""

    device: FakeDevice
    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    keeps: Any = dataclasses.field(repr=False)

    @classmethod
    def of(cls, device: FakeDevice, array: Array) -> FakeArray:
        """A copy of an array there, made at once."""
        memory = device.allocate(array.nbytes)
        np.copyto(device.peek(memory.pointer, array.shape, array.dtype), array)
        return cls(device, memory.pointer, array.shape, array.dtype, memory)

    def get(self) -> Array:
        """A copy of what it holds now, whatever the stream has yet to do."""
        return self.device.peek(self.pointer, self.shape, self.dtype).copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_EXTENSION, int(self.device.name.rpartition(":")[2])

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory of a fake device is nobody else's")
