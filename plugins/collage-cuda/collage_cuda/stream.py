"""NVIDIA devices through CuPy, which is imported only here and only when a device is opened.

CuPy's documentation is the reference for its calls.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from collage_core.contract import Buffer, Event, TensorSpec, uncollected
from collage_core.errors import DeviceError, DeviceMemoryError, DeviceUnavailableError, FeedError
from collage_cuda.error_codes import INSTALL, cuda_error

Array = np.ndarray[Any, Any]

_DLPACK_CUDA: Final = 2  # kDLCUDA in dlpack.h


def device_error(device: str, error: Exception) -> DeviceError:
    """Convert an exception from CuPy to one of core's errors, by its CUDA error code.

    Args:
        device: The device's name.
        error: `CUDARuntimeError`, `CUDADriverError`, `OutOfMemoryError` or any other exception.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return DeviceMemoryError(device, text)
    return cuda_error(device, int(getattr(error, "status", -1)), text)


class CudaStream:
    """A stream of one device; see `DeviceStream`.

    Args:
        cupy: The CuPy module.
        name: Name of the device.
        ordinal: CUDA's number of the device in this process.
    """

    def __init__(self, cupy: types.ModuleType, name: str, ordinal: int) -> None:
        self.name = name
        self._cupy: Any = cupy
        self._ordinal = ordinal
        with self._on():
            self._stream = self._cupy.cuda.Stream(non_blocking=True)

    @classmethod
    def open(cls, name: str) -> CudaStream:
        """Open a new stream on a device.

        Args:
            name: Name of the device, such as `"cuda:0"`.

        Raises:
            DeviceError: If CuPy, a driver or the device is missing, or the driver too old.
        """
        try:
            import cupy
        except Exception as error:  # a broken installation raises whatever its libraries do
            raise DeviceUnavailableError(name, f"CuPy cannot be imported: {error}", INSTALL) from error
        return cls.with_library(cupy, name)

    @classmethod
    def with_library(cls, cupy: Any, name: str) -> CudaStream:
        """Open a new stream with a given CuPy module; see `open`."""
        with _failing_on(name):
            if not cupy.cuda.runtime.driverGetVersion():
                raise DeviceUnavailableError(name, "no NVIDIA driver is installed")
            count = int(cupy.cuda.runtime.getDeviceCount())
        number = int(name.partition(":")[2])
        if number >= count:
            raise DeviceUnavailableError(name, f"CUDA shows {count} devices to this process")
        return cls(cupy, name, number)  # targets have CUDA's numbers

    @property
    def handle(self) -> int:
        """See `DeviceStream.handle`."""
        return int(self._stream.ptr)

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """See `DeviceStream.dlpack_device`."""
        return _DLPACK_CUDA, self._ordinal

    @property
    def cache_bytes(self) -> int:
        """See `DeviceStream.cache_bytes`: the L2 cache, which all multiprocessors of the device share."""
        runtime = self._cupy.cuda.runtime
        with _failing_on(self.name):
            return int(runtime.deviceGetAttribute(runtime.cudaDevAttrL2CacheSize, self._ordinal))

    @property
    def free_bytes(self) -> int:
        """See `DeviceStream.free_bytes`."""
        with self._on():
            free, _ = self._cupy.cuda.runtime.memGetInfo()
            return int(free)

    def another(self) -> CudaStream:
        """See `DeviceStream.another`."""
        return CudaStream(self._cupy, self.name, self._ordinal)

    def activate(self) -> None:
        """See `DeviceStream.activate`."""
        with _failing_on(self.name):
            self._cupy.cuda.runtime.setDevice(self._ordinal)

    def allocate(self, nbytes: int) -> CudaMemory:
        """See `DeviceStream.allocate`. By cudaMalloc, not from CuPy's pool, which keeps what is given back to it."""
        with self._on():
            return CudaMemory(self._cupy.cuda.Memory(max(1, nbytes)), nbytes)

    def allocate_host(self, nbytes: int) -> Array:
        """See `DeviceStream.allocate_host`. Not from CuPy's pool either, which rounds sizes up to powers of two."""
        cuda = self._cupy.cuda
        with self._on():
            pinned = cuda.PinnedMemory(max(1, nbytes), cuda.runtime.hostAllocPortable)
        found: Array = np.frombuffer(cuda.PinnedMemoryPointer(pinned, 0), np.uint8, nbytes)
        return found

    def write(self, pointer: int, source: Array) -> None:
        """See `DeviceStream.write`."""
        kind = self._cupy.cuda.runtime.memcpyHostToDevice
        self._copy(pointer, source.ctypes.data, source.nbytes, kind)

    def read(self, target: Array, pointer: int) -> None:
        """See `DeviceStream.read`."""
        kind = self._cupy.cuda.runtime.memcpyDeviceToHost
        self._copy(target.ctypes.data, pointer, target.nbytes, kind)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """See `DeviceStream.copy`."""
        self._copy(target, source, nbytes, self._cupy.cuda.runtime.memcpyDeviceToDevice)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            with _failing_on(self.name):
                self._cupy.cuda.runtime.memcpyAsync(target, source, nbytes, kind, self._stream.ptr)

    def synchronise(self) -> None:
        """See `DeviceStream.synchronise`."""
        with _failing_on(self.name):
            self._stream.synchronize()

    def event(self) -> CudaEvent:
        """See `DeviceStream.event`."""
        with self._on():
            return CudaEvent(self._cupy, self.name, self._stream)

    def capture(self, enqueue: Callable[[], None]) -> CudaGraph:
        """See `DeviceStream.capture`."""
        runtime = self._cupy.cuda.runtime
        with self._on(), uncollected(), self._stream:
            # of this thread's calls those that cannot be captured fail; other threads' are let be
            self._stream.begin_capture(mode=runtime.streamCaptureModeThreadLocal)
            try:
                enqueue()
            except BaseException:
                with contextlib.suppress(Exception):  # says that the capture is invalid, which is known
                    self._stream.end_capture()
                raise
            return CudaGraph(self.name, self._stream, self._stream.end_capture())

    def taken(self, spec: TensorSpec, array: Any) -> Buffer:
        """See `DeviceStream.taken`."""
        wanted = f"{spec.numpy_dtype}{list(spec.static_shape)}, C-contiguous, on {self.name}"
        try:
            # with this stream current, DLPack has the array's own stream waited for
            with self._on(), self._stream:
                view = self._cupy.from_dlpack(array)
        except Exception as error:
            raise FeedError(spec.name, f"bind an array of {wanted}; {type(array).__name__}: {error}") from error
        if view.dtype != spec.numpy_dtype or view.shape != spec.static_shape or not view.flags.c_contiguous:
            order = "" if view.flags.c_contiguous else ", not C-contiguous"
            raise FeedError(spec.name, f"bind an array of {wanted}; got {view.dtype}{list(view.shape)}{order}")
        return Buffer.at(spec, device=self.name, pointer=int(view.data.ptr), keeps=(array, view))

    def shown(self, buffer: Buffer) -> Any:
        """See `DeviceStream.shown`; a `cupy.ndarray`."""
        spec, cuda = buffer.spec, self._cupy.cuda
        memory = cuda.UnownedMemory(buffer.pointer, max(1, spec.nbytes), buffer, self._ordinal)
        return self._cupy.ndarray(spec.static_shape, spec.numpy_dtype, cuda.MemoryPointer(memory, 0))

    @contextlib.contextmanager
    def _on(self) -> Iterator[None]:
        """Make the device current and leave it current.

        Since CUDA 12, switching back to another device initialises CUDA on that device.
        """
        with _failing_on(self.name):
            self._cupy.cuda.runtime.setDevice(self._ordinal)
            yield


class CudaMemory:
    """See `DeviceMemory`.

    `cudaMalloc` aligns to 256 bytes. Freeing waits for the device, so enqueued work never loses its memory.

    Args:
        memory: CuPy's memory object, which frees the memory when it is collected.
        nbytes: Requested size.
    """

    __slots__ = ("_memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self._memory = memory
        self.nbytes = nbytes

    @property
    def pointer(self) -> int:
        """See `DeviceMemory.pointer`."""
        return int(self._memory.ptr)


class CudaEvent:
    """See `Event`.

    Args:
        cupy: The CuPy module.
        device: Name of the device.
        stream: Stream in which the event is recorded.
    """

    def __init__(self, cupy: Any, device: str, stream: Any) -> None:
        self._cupy = cupy
        self._device = device
        self._stream = stream
        self._event = cupy.cuda.Event()

    def record(self) -> None:
        """See `Event.record`."""
        with _failing_on(self._device):
            self._event.record(self._stream)

    def elapsed_us(self, earlier: Event) -> float:
        """See `Event.elapsed_us`."""
        if not isinstance(earlier, CudaEvent):
            raise TypeError(f"the time since {type(earlier).__name__} is not known to CUDA")
        with _failing_on(self._device):
            return float(self._cupy.cuda.get_elapsed_time(earlier._event, self._event)) * 1e3


class CudaGraph:
    """See `DeviceGraph`.

    Args:
        device: Name of the device.
        stream: Stream on which the graph is launched.
        graph: CuPy's graph object.
    """

    def __init__(self, device: str, stream: Any, graph: Any) -> None:
        self._device = device
        self._launch = functools.partial(graph.launch, stream)

    def launch(self) -> None:
        """See `DeviceGraph.launch`."""
        with _failing_on(self._device):
            self._launch()


@contextlib.contextmanager
def _failing_on(device: str) -> Iterator[None]:
    """Convert CUDA errors raised in the block to core's errors; let other exceptions pass."""
    try:
        yield
    except DeviceError:
        raise
    except MemoryError as error:
        raise device_error(device, error) from error
    except RuntimeError as error:  # of which CUDARuntimeError and CUDADriverError are kinds
        if not hasattr(error, "status"):
            raise
        raise device_error(device, error) from error
