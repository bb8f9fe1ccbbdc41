"""What the runtime and the clock need of a device: memory, one stream of it, events, and captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from collage_core.contract.buffer import Buffer
from collage_core.ir.values.tensor_spec import TensorSpec

Array = np.ndarray[Any, Any]


class DeviceMemory(Protocol):
    """A piece of a device's memory; given back when nothing refers to this object any more.

    Attributes:
        pointer: Its address there, a multiple of `DEVICE_ALIGNMENT_BYTES`.
        nbytes: Its size.
    """

    @property
    def pointer(self) -> int:
        """See above; a property so that implementations may compute it."""

    @property
    def nbytes(self) -> int:
        """See above."""


class Event(Protocol):
    """A point of a stream."""

    def record(self) -> None:
        """Puts the point after what was enqueued so far."""

    def elapsed_us(self, earlier: Event) -> float:
        """Microseconds of the device's own clock since another point; both must have been reached.

        Raises:
            DeviceError: If the device fails.
        """


class DeviceGraph(Protocol):
    """What was captured of a stream, to be run again."""

    def launch(self) -> None:
        """Enqueues all of it at once.

        Raises:
            DeviceError: If the device fails.
        """


@runtime_checkable
class DeviceStream(Protocol):
    """A device as one executable uses it: its memory, and one stream on which everything happens in order.

    Everything that says it enqueues returns before it is done, so memory it names has to live and host memory it
    reads has to stay as it is until the next `synchronise`. All calls may raise a `DeviceError`.

    Attributes:
        name: As targets name it: `"cuda:0"`.
        handle: The stream as `RunContext.stream` gives it to kernels.
        dlpack_device: Device type and number as DLPack gives them.
        cache_bytes: Size of its last-level cache; 0 if it has none or does not say.
        free_bytes: Memory that could be allocated now.
    """

    @property
    def name(self) -> str:
        """See above."""

    @property
    def handle(self) -> int:
        """See above."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """See above."""

    @property
    def cache_bytes(self) -> int:
        """See above."""

    @property
    def free_bytes(self) -> int:
        """See above."""

    def another(self) -> DeviceStream:
        """Another stream of the same device, for what runs beside this one."""

    def activate(self) -> None:
        """Makes it the device of the calling thread, as libraries' calls expect it."""

    def allocate(self, nbytes: int) -> DeviceMemory:
        """A piece of its memory; what it holds is undefined.

        Raises:
            DeviceMemoryError: If so much is not free.
        """

    def allocate_host(self, nbytes: int) -> Array:
        """Bytes of the host's memory that copies reach without a detour (pinned), aligned to `ALIGNMENT_BYTES`."""

    def write(self, pointer: int, source: Array) -> None:
        """Enqueues a copy of a C-contiguous array to the device. The array has to stay as it is until that is done.

        CUDA may wait for the stream and take a copy of memory that is not pinned, but does not promise it (NVIDIA, "API
        synchronization behavior").
        """

    def read(self, target: Array, pointer: int) -> None:
        """Enqueues a copy into a C-contiguous array. Into memory that is not pinned it waits for the stream."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Enqueues a copy within the device."""

    def synchronise(self) -> None:
        """Waits until everything enqueued is done; here errors of kernels show."""

    def event(self) -> Event:
        """A point of the stream yet to be recorded."""

    def capture(self, enqueue: Callable[[], None]) -> DeviceGraph:
        """What a function enqueues, as a graph; none of it is run.

        While it is called nothing may be allocated, given back or waited for, and no copy may touch host memory that is
        not pinned. Cycles are not collected meanwhile, so what only the collector would give back is no harm.
        The stream is as it was before when something in it raises.

        Raises:
            DeviceCaptureError: If something in it cannot be captured.
        """

    def taken(self, spec: TensorSpec, array: Any) -> Buffer:
        """A place over a caller's array of this device, which speaks DLPack; nothing is copied, the array is kept.

        Raises:
            FeedError: If dtype, shape or strides do not fit.
        """

    def shown(self, buffer: Buffer) -> Any:
        """A place as an array that speaks DLPack, without a copy; valid as long as the place's owner."""


OpenDevice = Callable[[str], DeviceStream]
"""Opens a device by name; raises `DeviceError` if it cannot be used, saying why and what to do."""
