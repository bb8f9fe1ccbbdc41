"""A stream of a fake device; work is deferred until it is required.

Enqueued work runs only when somebody waits for the stream, so a missing wait shows as stale data. Copies
read the host's memory when they run, not when they are enqueued, so memory that was changed or freed
meanwhile shows, too.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collage_core.contract import ALIGNMENT_BYTES, Buffer, Event, TensorSpec, uncollected
from collage_core.errors import DeviceCaptureError, DeviceUseError, FeedError
from collage_testing.kit.fake_hardware import DLPACK_EXTENSION, GARBAGE, Array, FakeArray, FakeHardware, FakeMemory
from collage_testing.kit.fake_time import Range, copy_us

Work = Callable[[], None]

_handles = itertools.count(0x5000)
_streams: weakref.WeakValueDictionary[int, FakeStream] = weakref.WeakValueDictionary()


def stream_of(handle: int | None) -> FakeStream:
    """Look up the stream of a handle, as a driver would.

    Raises:
        DeviceUseError: If there is none.
    """
    stream = None if handle is None else _streams.get(handle)
    if stream is None:
        raise DeviceUseError("fake", f"{handle} is no stream of it")
    return stream


def _owner(array: Array) -> Array:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Enqueued:
    """A pending operation of a stream; a kernel has a name."""

    work: Work
    us: float
    name: str = ""
    asked_us: float = 0.0
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()


class FakeStream:
    """A stream of a fake device; see `DeviceStream`."""

    def __init__(self, device: FakeHardware) -> None:
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
        return DLPACK_EXTENSION, int(self.name.rpartition(":")[2])

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
        raw = np.full(nbytes + ALIGNMENT_BYTES, GARBAGE, np.uint8)
        self.device.pin(raw)
        skip = -raw.ctypes.data % ALIGNMENT_BYTES
        return raw[skip : skip + nbytes]

    def enqueue(
        self, name: str, work: Work, *, us: float = 1.0, reads: Sequence[Range] = (), writes: Sequence[Range] = ()
    ) -> None:
        """Enqueue work, as a kernel launch does.

        Args:
            name: The kernel's name in the log.
            work: The computation; `FakeDevice.view` gives it memory.
            us: Duration by the device's clock, in microseconds.
            reads: Addresses and sizes it reads; memory outside the device's cache takes longer.
            writes: Addresses and sizes it writes.
        """
        if self._captured is None:
            self.device.time.launch()
        what = _Enqueued(work=work, us=us, name=name, reads=tuple(reads), writes=tuple(writes))
        self._put("kernel", name, what)

    def write(self, pointer: int, source: Array) -> None:
        """See `DeviceStream.write`."""
        if not self.device.is_pinned(source):
            self._not_captured("copies from memory that is not pinned")
        owner, address, nbytes = weakref.ref(_owner(source)), source.ctypes.data, source.nbytes

        def work() -> None:
            if owner() is None:
                raise DeviceUseError(self.name, "memory of the host is gone before a copy from there was waited for")
            place = self.device.view(pointer, (nbytes,), np.uint8)
            ctypes.memmove(place.ctypes.data, address, nbytes)

        self._put("write", str(nbytes), _Enqueued(work=work, us=copy_us(nbytes), writes=((pointer, nbytes),)))

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
        with uncollected():
            self._captured, freed = captured, self.device.freed
            try:
                enqueue()
            finally:
                self._captured = None
            if self.device.freed > freed:
                raise DeviceCaptureError(self.name, "memory is given back while a call is captured")
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
        """Enqueue captured work."""
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
