"""A loaded kernel with places of its own: NumPy arrays in, one call or a graph of it, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage.measure.worker.staged import Staged
from collage.measure.worker.verdicts import aligned_buffer, same_bits, spoil
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
    """A kernel bound to places that nobody else has.

    Those of a kernel of a device are there; each has a counterpart in the host's memory, from which it is filled before
    a call and into which it is fetched after it.

    Args:
        kernel: The kernel.
        artifact: What it was loaded from.
        function: What it computes.
        given: Its inputs, in their order.
        device: Where it runs; None for the CPU.
        aligned: Whether places are aligned as core's own; otherwise each starts an element later, as a caller's array
            may.
        keeps: What has to live as long as the kernel may be called, such as its weights on the device.

    Attributes:
        enqueue: The kernel's call as it is.
        inputs: What it reads, in the host's memory.
        outputs: What it writes, likewise.

    Raises:
        KernelError: If the kernel refuses these places.
        DeviceError: If the device has not the memory.
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
        """One call on what the inputs hold; afterwards all places hold what it left there.

        Raises:
            DeviceUseError: If it waits for its stream; only of a fake device is that known.
        """
        if self._staged is None:
            self.enqueue()
        else:
            self._staged.run(self._without_waiting)

    def replay(self) -> None:
        """The same by a graph of the call.

        Raises:
            DeviceCaptureError: If it cannot be captured.
        """
        assert self._device is not None, "the CPU has no graphs"
        self._on_device(self._device.capture(self.enqueue).launch)

    def run(self) -> list[Array]:
        """What one call writes where nothing was that it could have found: copies of its outputs, in their order.

        Raises:
            DeviceUseError: If it waits for its stream; only of a fake device is that known.
        """
        self.spoil()
        self.call()
        return self._found()

    def check_replays(self, times: int) -> list[Array]:
        """Calls it, captures the next call, and launches the graph: each launch has to write what the call wrote.

        Args:
            times: How many launches.

        Returns:
            What the last one wrote.

        Raises:
            AssertionError: If the artifact does not say that it is capturable; if anything runs while it is captured;
                if a launch writes other bits than the call, unless the artifact says that it may.
            DeviceCaptureError: If it cannot be captured.
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
        """Has the outputs hold other bits than they do, so that what the next call does not write is seen."""
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
    """A place as core makes it, or one that starts where an element may start."""
    beyond = 0 if aligned or spec.kind is not ValueKind.PLANNED else spec.numpy_dtype.itemsize
    return aligned_buffer(spec, beyond=beyond)


def _same(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return all(same_bits(one, other) for one, other in zip(some, others, strict=True))
