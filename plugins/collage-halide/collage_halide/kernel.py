"""A compiled library as a callable kernel; nothing is compiled or linked, and Halide is not imported."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, RunContext, Unsupported
from collage_core.errors import KernelError
from collage_halide.compile import ENTRY
from collage_halide.lower import KERNEL, RUNTIME
from collage_halide.native import entry, load_library, load_runtime, native_buffer


def load(artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Load a kernel, and the runtime that it shares with others."""
    places: Any = artifact.metadata["places"]
    try:
        weights = {name: run.weight(content) for name, content in artifact.constants.items()}
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    if KERNEL not in artifact.files:
        return HalideKernel(None, places, weights)
    try:
        runtime = load_runtime(artifact.files[RUNTIME], run.threads, run.scratch)
        library = load_library(artifact.files[KERNEL], run.scratch)
        function = entry(library, ENTRY, len(places))
    except (OSError, AttributeError, ValueError) as error:
        return Unsupported(f"its library cannot be loaded: {error}")
    return HalideKernel(function, places, weights, keeps=(runtime, library))


class HalideKernel:
    """A loaded kernel; it is stateless, so its calls may run concurrently.

    Args:
        function: The compiled function; None if there is nothing to compute.
        places: Its arguments: where each is, its name, shape, and type.
        weights: Weights by name.
        keeps: Libraries that stay loaded as long as this, or one of its calls.
    """

    reentrant: Literal[True] = True

    def __init__(
        self,
        function: Any,
        places: Sequence[Sequence[Any]],
        weights: Mapping[str, Buffer],
        keeps: tuple[Any, ...] = (),
    ) -> None:
        self._function = function
        self._places = places
        self._weights = weights
        self._keeps = keeps

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        if self._function is None:
            return _nothing
        memory: Mapping[str, Any] = {"in": inputs, "out": outputs, "weight": self._weights}
        try:
            buffers = [
                native_buffer(memory[where][name].pointer, shape, code, bits)
                for where, name, shape, code, bits in self._places
            ]
        except (IndexError, KeyError) as error:
            raise KernelError(f"the kernel has other arguments than these: {error}") from error
        function, arguments = self._function, [ctypes.addressof(buffer) for buffer in buffers]

        def call() -> None:
            if code := function(*arguments):
                raise KernelError(f"the kernel fails with Halide's error {code}")

        call.__dict__["keeps"] = (self, buffers, inputs, outputs)
        return call


def _nothing() -> None:
    """Do nothing, for kernels whose outputs have no elements."""
