"""A loaded kernel with its own buffers: NumPy arrays in, one call or a graph of it, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage.measure.worker.guarded_memory import aligned_buffer
from collage.measure.worker.staged import Staged
from collage.measure.worker.verdicts import same_bits, spoil
from collage_core.contract import (
    Artifact,
    Buffer,
    DeviceGraph,
    DeviceStream,
    Kernel,
    KernelFunction,
    TensorSpec,
    ValueKind,
    workspace_of,
)
from collage_core.errors import DeviceUseError
from collage_testing.kit.device_calls import logged, waits
from collage_testing.kit.fake_stream import FakeStream

Array = np.ndarray[Any, Any]


class BoundKernel:
    """A kernel bound to private buffers.

    The buffers of a device kernel are on its device; each has a counterpart in host memory, from which it is filled
    before a call and into which it is fetched after it.

    Args:
        kernel: The kernel.
        artifact: The artifact it was loaded from.
        function: The function it computes.
        given: Its inputs, in their order.
        device: Its device; None for the CPU.
        aligned: Whether buffers are aligned as core's own; otherwise each starts an element later, as a caller's array
            may.
        keeps: Objects to keep alive as long as the kernel may be called, such as its weights on the device.

    Attributes:
        enqueue: The kernel's own call.
        inputs: Kernel inputs, in host memory.
        outputs: Kernel outputs, in host memory.

    Raises:
        KernelError: If the kernel refuses these buffers.
        DeviceError: If the device has not enough memory.
    """

    def __init__(
        self,
        kernel: Kernel,
        artifact: Artifact,
        function: KernelFunction,
        given: Sequence[Any],
        device: DeviceStream | None = None,
        *,
        aligned: bool = True,
        keeps: object = None,
    ) -> None:
        self.inputs = tuple(_buffer(spec, aligned) for spec in function.inputs)
        self.outputs = tuple(_buffer(spec, aligned) for spec in function.outputs)
        for buffer, value in zip(self.inputs, given, strict=True):
            buffer.put(value)
        self._artifact = artifact
        self._device = device
        self._staged: Staged | None = None
        self._keeps: tuple[object, ...] = (keeps,)
        size = workspace_of(artifact, kernel)
        if device is not None:
            self._staged = Staged(device, self.inputs, self.outputs, aligned=aligned)
            self.enqueue = self._staged.bind(kernel, size)
        else:
            spec = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(size,))
            workspace = aligned_buffer(spec) if size else None
            self._keeps += (workspace,)
            self.enqueue = kernel.bind(self.inputs, self.outputs, workspace)

    def call(self) -> None:
        """Call the kernel once on the current inputs and fetch all values from the device afterwards.

        Raises:
            DeviceUseError: If the call waits for its stream; detected on fake devices only.
        """
        if self._staged is None:
            self.enqueue()
        else:
            self._staged.run(self._without_waiting)

    def replay(self) -> None:
        """Capture the call in a graph and launch the graph.

        Raises:
            DeviceCaptureError: If the call cannot be captured.
        """
        assert self._device is not None, "the CPU has no graphs"
        self._on_device(self._device.capture(self.enqueue).launch)

    def run(self) -> list[Array]:
        """Overwrite the outputs with other bits, call the kernel once, and return copies of its outputs in order.

        Raises:
            DeviceUseError: If the call waits for its stream; detected on fake devices only.
        """
        self.spoil()
        self.call()
        return self._found()

    def check_replays(self, times: int) -> list[Array]:
        """Check that launches of a captured call write what the call itself writes.

        Calls the kernel, captures the next call, and launches the graph.

        Args:
            times: Number of launches.

        Returns:
            The outputs of the last launch.

        Raises:
            AssertionError: If the artifact is not declared capturable; if anything runs during capture; if a launch
                writes other bits than the call, unless the artifact is declared non-deterministic.
            DeviceCaptureError: If the call cannot be captured.
        """
        device, artifact = self._device, self._artifact
        assert device is not None, "the CPU has no graphs"
        assert artifact.capturable, f"variant {artifact.variant!r} does not say that it is capturable"
        found = self.run()
        first, graphs = found, list[DeviceGraph]()
        self.spoil()
        before = self._found()

        def capture() -> None:
            device.synchronise()
            graphs.append(device.capture(self.enqueue))

        self._on_device(capture)
        assert _same(before, self._found()), f"variant {artifact.variant!r} runs while it is captured"
        for number in range(times):
            self.spoil()
            self._on_device(graphs[0].launch)
            found = self._found()
            if artifact.deterministic and not _same(first, found):
                raise AssertionError(
                    f"variant {artifact.variant!r}: launch {number + 1} gives other bits than the call"
                )
        return found

    def spoil(self) -> None:
        """Overwrite the outputs with other bits, to detect elements that the next call does not write."""
        for buffer in self.outputs:
            spoil(buffer, None if buffer.spec.kind is ValueKind.FOREIGN else buffer.array.copy())

    def _found(self) -> list[Array]:
        return [buffer.array.copy() for buffer in self.outputs]

    def _on_device(self, call: Callable[[], Any]) -> None:
        assert self._staged is not None
        self._staged.run(call)

    def _without_waiting(self) -> None:
        if not isinstance(self._device, FakeStream):  # which keeps a log
            self.enqueue()
            return
        with logged(self._device.device) as calls:
            self.enqueue()
        if waits(calls):
            raise DeviceUseError(self._device.name, "a kernel's call waits for the stream; it should only enqueue")


def _buffer(spec: TensorSpec, aligned: bool) -> Buffer:
    """Allocate a buffer aligned as core's own, or one offset by one element."""
    beyond = 0 if aligned or spec.kind is not ValueKind.PLANNED else spec.numpy_dtype.itemsize
    return aligned_buffer(spec, beyond=beyond)


def _same(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return all(same_bits(one, other) for one, other in zip(some, others, strict=True))
