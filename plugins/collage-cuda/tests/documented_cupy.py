"""The part of CuPy that core uses, over the host's memory, with CuPy 14's signatures and the rules CUDA documents.

What is enqueued is done when somebody waits. Addresses that nobody allocated lose the device, from then on. A thread
that captures may neither take memory nor give it back, nor wait for its stream: that fails, and the capture with it
(cudaThreadExchangeStreamCaptureMode). What kernels and libraries do it cannot show.
"""

from __future__ import annotations

import ctypes
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

MEMORY_BYTES = 1 << 30
CACHE_BYTES = 50 << 20
BYTES_PER_MS = 1e9
COPY_MS = 2e-3
INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS, UNSUPPORTED, INVALIDATED = 1, 2, 700, 900, 901

Work = Callable[[], None]


class CUDARuntimeError(RuntimeError):
    """As CuPy raises it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class Runtime:
    """`cupy.cuda.runtime` of a machine.

    Attributes:
        current: The calling thread's device.
        chosen: Devices made current, in order.
    """

    memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3  # noqa: N815
    streamCaptureModeThreadLocal = 1  # noqa: N815
    hostAllocPortable = 1  # noqa: N815
    cudaDevAttrL2CacheSize = 38  # noqa: N815

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self.current = 0
        self.chosen: list[int] = []
        self.clock_ms = 0.0
        self.status = 0
        self.streams: dict[int, Stream] = {}
        self.stack: list[Stream] = []
        self._blocks: dict[int, Any] = {}
        self._pinned: dict[int, Any] = {}

    def check(self, status: int) -> None:
        if status := self.status or status:
            raise CUDARuntimeError(status)

    def driverGetVersion(self) -> int:  # noqa: N802
        return 13000

    def getDeviceCount(self) -> int:  # noqa: N802
        return self._devices

    def setDevice(self, device: int) -> None:  # noqa: N802
        self.chosen.append(device)
        self.current = device
        self.check(0)

    def deviceGetAttribute(self, attrib: int, device: int) -> int:  # noqa: N802
        assert device < self._devices
        return {self.cudaDevAttrL2CacheSize: CACHE_BYTES}[attrib]

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        self.check(0)
        return MEMORY_BYTES - sum(map(len, self._blocks.values())), MEMORY_BYTES

    def malloc(self, size: int) -> int:
        self.forbid()
        self.check(OUT_OF_MEMORY if size > self.memGetInfo()[0] else 0)
        held = ctypes.create_string_buffer(size + 512)
        pointer = -(-ctypes.addressof(held) // 512) * 512
        self._blocks[pointer] = held
        return pointer

    def free(self, ptr: int) -> None:
        self.forbid()
        del self._blocks[ptr]
        self.check(0)

    def hostAlloc(self, size: int, flags: int) -> int:  # noqa: N802
        self.forbid()
        held = ctypes.create_string_buffer(size)
        self._pinned[ctypes.addressof(held)] = held
        return ctypes.addressof(held)

    def freeHost(self, ptr: int) -> None:  # noqa: N802
        self.forbid()
        del self._pinned[ptr]

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
        def copy() -> None:
            for address, is_device in ((dst, kind != 2), (src, kind != 1)):
                if is_device and not _within(self._blocks, address, size):
                    self.status = ILLEGAL_ADDRESS
            self.check(0)
            ctypes.memmove(dst, src, size)
            self.clock_ms += COPY_MS + size / BYTES_PER_MS

        self.streams[stream].enqueue(copy)
        if kind == self.memcpyDeviceToHost and not _within(self._pinned, dst, size):
            self.streams[stream].synchronize()

    def forbid(self) -> None:
        """What a thread that captures must not do."""
        for stream in self.streams.values():
            if stream.captured is not None:
                stream.invalid = True
                raise CUDARuntimeError(UNSUPPORTED)


def _within(blocks: dict[int, Any], address: int, size: int) -> bool:
    return any(start <= address and address + size <= start + len(held) for start, held in blocks.items())


class Stream:
    """`cupy.cuda.Stream`."""

    def __init__(
        self,
        runtime: Runtime,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ) -> None:
        assert non_blocking, (
            "a stream that waits for the default one makes that one's uses invalid while it is captured"
        )
        self._runtime = runtime
        self.ptr = 0x1000 + len(runtime.streams)
        self.device_id = runtime.current
        self.captured: list[Work] | None = None
        self.invalid = False
        self._queue: list[Work] = []
        runtime.streams[self.ptr] = self

    def __enter__(self) -> Stream:
        if self._runtime.current != self.device_id:
            raise RuntimeError("The device that the stream is created on does not match with the current device")
        self._runtime.stack.append(self)
        return self

    def __exit__(self, *args: object) -> None:
        self._runtime.stack.pop()

    def enqueue(self, work: Work) -> None:
        (self._queue if self.captured is None else self.captured).append(work)

    def synchronize(self) -> None:
        if self.captured is not None:
            self._runtime.forbid()
        queue, self._queue = self._queue, []
        for work in queue:
            work()
        self._runtime.check(0)

    def begin_capture(self, mode: int | None = None) -> None:
        assert mode == self._runtime.streamCaptureModeThreadLocal
        self.captured, self.invalid = [], False

    def end_capture(self) -> Graph:
        work, self.captured = self.captured, None
        assert work is not None
        self._runtime.check(INVALIDATED if self.invalid else 0)
        return Graph(work)


class Graph:
    """`cupy.cuda.Graph`."""

    def __init__(self, work: list[Work]) -> None:
        self._work = work

    def launch(self, stream: Stream | None = None) -> None:
        assert stream is not None
        for work in self._work:
            stream.enqueue(work)


class Event:
    """`cupy.cuda.Event`."""

    def __init__(
        self, runtime: Runtime, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self._runtime = runtime
        self._timing = not disable_timing
        self._at_ms: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        assert stream is not None
        self._at_ms = None
        stream.enqueue(self._reach)

    def _reach(self) -> None:
        self._at_ms = self._runtime.clock_ms

    @staticmethod
    def elapsed(start_event: Event, end_event: Event) -> float:
        assert start_event._timing
        assert end_event._timing
        assert start_event._at_ms is not None, "cudaErrorNotReady"
        assert end_event._at_ms is not None, "cudaErrorNotReady"
        return end_event._at_ms - start_event._at_ms


class Memory:
    """`cupy.cuda.Memory`."""

    def __init__(self, runtime: Runtime, size: int) -> None:
        self._runtime = runtime
        self.ptr, self.size, self.device_id = 0, size, runtime.current
        self.ptr = runtime.malloc(size)

    def __del__(self) -> None:
        if self.ptr:
            self._runtime.free(self.ptr)


class PinnedMemory:
    """`cupy.cuda.PinnedMemory`."""

    def __init__(self, runtime: Runtime, size: int, flags: int = 0) -> None:
        self._runtime = runtime
        self.ptr, self.size = runtime.hostAlloc(size, flags), size

    def __del__(self) -> None:
        self._runtime.freeHost(self.ptr)


def pinned_memory_pointer(mem: PinnedMemory, offset: int) -> Any:
    """`cupy.cuda.PinnedMemoryPointer`, as far as it is a buffer: Python before 3.12 lets no class of its own be one."""
    shown = (ctypes.c_char * (mem.size - offset)).from_address(mem.ptr + offset)
    shown.__dict__["mem"] = mem
    return shown


class UnownedMemory:
    """`cupy.cuda.UnownedMemory`."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        assert device_id >= 0, "it would be looked up"
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class NdArray:
    """`cupy.ndarray`.

    Attributes:
        waited_for_by: Streams that have to see what was enqueued for it so far.
    """

    def __init__(self, runtime: Runtime, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self.data = MemoryPointer(Memory(runtime, self.nbytes), 0) if memptr is None else memptr
        self.flags = types.SimpleNamespace(c_contiguous=True)
        self.waited_for_by: list[int] = []

    def get(self) -> np.ndarray[Any, Any]:
        found = np.empty(self.shape, self.dtype)
        ctypes.memmove(found.ctypes.data, self.data.ptr, self.nbytes)
        return found

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.data.device_id

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, copy: bool | None = None) -> NdArray:
        assert stream not in (None, 0)
        self.waited_for_by.append(int(stream or 0))
        return self


def documented_cupy(devices: int = 1) -> Any:
    """The module, on a machine with devices of its own."""
    runtime = Runtime(devices)

    def asarray(array: np.ndarray[Any, Any]) -> NdArray:
        made = NdArray(runtime, array.shape, array.dtype)
        ctypes.memmove(made.data.ptr, array.ctypes.data, array.nbytes)
        return made

    def from_dlpack(array: Any, *, device: object = None, copy: bool | None = None) -> NdArray:
        kind, number = array.__dlpack_device__()
        assert (kind, number) == (2, runtime.current)
        capsule: NdArray = array.__dlpack__(stream=runtime.stack[-1].ptr, max_version=(1, 0), copy=copy)
        return NdArray(runtime, capsule.shape, capsule.dtype, capsule.data)

    cuda = types.SimpleNamespace(
        runtime=runtime,
        Stream=functools.partial(Stream, runtime),
        Event=functools.partial(Event, runtime),
        Memory=functools.partial(Memory, runtime),
        PinnedMemory=functools.partial(PinnedMemory, runtime),
        PinnedMemoryPointer=pinned_memory_pointer,
        UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        get_elapsed_time=Event.elapsed,
    )
    ndarray = functools.partial(NdArray, runtime)
    return types.SimpleNamespace(cuda=cuda, ndarray=ndarray, asarray=asarray, from_dlpack=from_dlpack)
