"""A cubin as a callable kernel; nothing is compiled, and Triton is not imported."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, RunContext, Unsupported
from collage_core.errors import DeviceCapabilityError, DriverTooOldError, KernelError
from collage_triton.compile import ALIGNED_BYTES
from collage_triton.driver import Driver
from collage_triton.lower import ALIGNED, ANY


def load(artifact: Artifact, run: RunContext, driver: Callable[[], Driver]) -> Kernel | Unsupported:
    """Load both cubins.

    Args:
        artifact: Artifact returned by `lower`.
        run: Run context with the stream, and the weights on the device.
        driver: Returns the driver, and creates it if necessary.

    Raises:
        DeviceError: If the device does not have the memory for the code, or is lost.
    """
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    try:
        weights = {name: run.weight(content) for name, content in artifact.constants.items()}
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    try:
        library = driver()
        context = library.context_of(run.stream, run.device)
        metadata: Mapping[str, Any] = artifact.metadata
        functions = {
            name: library.function(context, artifact.files[name], launch["name"], launch["shared_bytes"])
            for name, launch in metadata["launches"].items()
        }
    except OSError as error:
        return Unsupported(f"the CUDA driver cannot be loaded ({error}); install NVIDIA's driver")
    except (KernelError, DeviceCapabilityError, DriverTooOldError) as error:  # another cubin might do
        return Unsupported(str(error))
    return TritonKernel(library, context, functions, metadata, weights, run.stream)


class TritonKernel:
    """A loaded kernel; it is stateless, so its calls may run concurrently.

    Args:
        driver: Launches the kernel.
        context: Context of the stream.
        functions: Loaded functions by name of the cubin.
        metadata: Metadata of the artifact.
        weights: Weights on the device, by name.
        stream: Stream to enqueue on.
    """

    reentrant: Literal[True] = True

    def __init__(
        self,
        driver: Driver,
        context: ctypes.c_void_p,
        functions: Mapping[str, ctypes.c_void_p],
        metadata: Mapping[str, Any],
        weights: Mapping[str, Buffer],
        stream: int,
    ) -> None:
        self._driver = driver
        self._context = context
        self._functions = functions
        self._metadata = metadata
        self._weights = weights
        self._stream = stream

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        if not self._functions:
            return _nothing
        places: Mapping[str, Any] = {"in": inputs, "out": outputs, "w": self._weights}
        try:
            pointers = [places[kind][place].pointer for kind, place in self._metadata["arguments"]]
        except (IndexError, KeyError) as error:
            raise KernelError(f"the kernel has other arguments than these: {error}") from error
        chosen = ALIGNED if all(pointer % ALIGNED_BYTES == 0 for pointer in pointers) else ANY
        launch = self._metadata["launches"][chosen]
        values = [ctypes.c_void_p(pointer) for pointer in (*pointers, *[0] * launch["scratch"])]
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        call = functools.partial(
            self._driver.launch,
            self._context,
            self._functions[chosen],
            self._metadata["grid"],
            launch["threads"],
            launch["shared_bytes"],
            self._stream,
            arguments,
        )
        call.__dict__["keeps"] = (values, inputs, outputs, self._weights)
        return call


def _nothing() -> None:
    """Do nothing, for kernels without output elements."""
