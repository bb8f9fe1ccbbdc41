"""Device interface used by the runtime and the clock: memory, one stream, events and captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from collage_core.contract.buffer import Buffer
from collage_core.ir.values.tensor_spec import TensorSpec

Array = np.ndarray[Any, Any]


class DeviceMemory(Protocol):
    """A block of device memory, freed when nothing refers to this object any more.

    Attributes:
        pointer: Address on the device, a multiple of `DEVICE_ALIGNMENT_BYTES`.
        nbytes: Size in bytes.
    """

    @property
    def pointer(self) -> int:
        """Address on the device; a property so that implementations may compute it."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


class Event(Protocol):
    """An event recorded in a stream."""

    def record(self) -> None:
        """Record the event after all work enqueued so far."""

    def elapsed_us(self, earlier: Event) -> float:
        """Return the microseconds since another event, by the device's clock; both events must have completed.

        Raises:
            DeviceError: If the device fails.
        """


class DeviceGraph(Protocol):
    """A captured graph that can be launched repeatedly."""

    def launch(self) -> None:
        """Enqueue the whole graph in one launch.

        Raises:
            DeviceError: If the device fails.
        """


@runtime_checkable
class DeviceStream(Protocol):
    """A device as one executable uses it: its memory, and one stream on which all operations run in order.

    Methods that enqueue work return before the work is done: until the next `synchronise`, the memory they use
    must stay alive and the host memory they read must stay unchanged. All calls may raise a `DeviceError`.

    Attributes:
        name: Name used by targets: `"cuda:0"`.
        handle: Stream handle that kernels get as `RunContext.stream`.
        dlpack_device: Device type and number as in DLPack.
        cache_bytes: Size of the last-level cache; 0 if there is none or it is unknown.
        free_bytes: Memory that could be allocated now.
    """

    @property
    def name(self) -> str:
        """Size in bytes."""

    @property
    def handle(self) -> int:
        """Size in bytes."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Size in bytes."""

    @property
    def cache_bytes(self) -> int:
        """Size in bytes."""

    @property
    def free_bytes(self) -> int:
        """Size in bytes."""

    def another(self) -> DeviceStream:
        """Open another stream on the same device, for concurrent work."""

    def activate(self) -> None:
        """Make the device current in the calling thread, as library calls expect."""

    def allocate(self, nbytes: int) -> DeviceMemory:
        """Allocate device memory; its contents are undefined.

        Raises:
            DeviceMemoryError: If there is not enough free memory.
        """

    def allocate_host(self, nbytes: int) -> Array:
        """Allocate pinned host memory, aligned to `ALIGNMENT_BYTES`, which copies access without staging."""

    def write(self, pointer: int, source: Array) -> None:
        """Enqueue a copy of a C-contiguous array to the device. The array must not change until the copy is done.

        For memory that is not pinned, CUDA may wait for the stream and stage a copy, but does not promise it (NVIDIA,
        "API synchronization behavior").
        """

    def read(self, target: Array, pointer: int) -> None:
        """Enqueue a copy into a C-contiguous array. If its memory is not pinned, the call waits for the stream."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Enqueue a copy within the device."""

    def synchronise(self) -> None:
        """Wait until all enqueued work is done; asynchronous kernel errors are raised here."""

    def event(self) -> Event:
        """Create an event on the stream, not yet recorded."""

    def capture(self, enqueue: Callable[[], None]) -> DeviceGraph:
        """Capture the work that a function enqueues as a graph, without running it.

        During the capture no memory may be allocated or freed, nothing may be waited for, and no copy may touch host
        memory that is not pinned. Garbage collection of cycles is disabled meanwhile, so memory that only the collector
        would free does no harm. If the function raises, the stream is restored to its previous state.

        Raises:
            DeviceCaptureError: If an operation cannot be captured.
        """

    def taken(self, spec: TensorSpec, array: Any) -> Buffer:
        """Create a buffer over a caller's DLPack array on this device, without a copy; it keeps the array alive.

        Raises:
            FeedError: If dtype, shape or strides do not fit.
        """

    def shown(self, buffer: Buffer) -> Any:
        """Return a buffer as a DLPack array, without a copy; it is valid as long as the buffer's owner."""


OpenDevice = Callable[[str], DeviceStream]
"""Function that opens a device by name; raises `DeviceError` with reason and advice if it is unusable."""
