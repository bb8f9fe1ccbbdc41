"""A kernel bound, in a worker, to buffers that hold the values it is tried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir

from collage.measure.wire.outcomes import Stage
from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.failing import failing_as
from collage.measure.worker.guarded_memory import aligned_buffer
from collage.measure.worker.staged import Staged
from collage_core.contract import Artifact, Buffer, DeviceStream, Kernel, KernelFunction, TensorSpec, workspace_of


def bound_to(
    kernel: Kernel,
    artifact: Artifact,
    function: KernelFunction,
    values: Sequence[Any],
    device: Callable[[], DeviceStream | None],
    lost: Callable[[str], None],
) -> Bound:
    """Bind a kernel to buffers of its own.

    Args:
        kernel: The kernel.
        artifact: What it was loaded from.
        function: The candidate.
        values: What its inputs are to hold.
        device: Gives the device it runs on; None for the CPU.
        lost: Receives why a device is lost.

    Raises:
        Stopped: If it cannot be bound.
    """
    with failing_as(Stage.BIND, lost):
        return _bound(kernel, artifact, function, values, device())


def called(bound: Bound, lost: Callable[[str], None]) -> None:
    """Call a kernel once.

    Args:
        bound: The kernel.
        lost: Receives why a device is lost.

    Raises:
        Stopped: If it fails.
    """
    with failing_as(Stage.RUN, lost):
        if bound.staged is None:
            bound.call()
        else:
            bound.staged.run(bound.call)


def _bound(
    kernel: Kernel, artifact: Artifact, function: KernelFunction, values: Sequence[Any], device: DeviceStream | None
) -> Bound:
    inputs = tuple(aligned_buffer(_now(spec)) for spec in function.inputs)
    for buffer, value in zip(inputs, values, strict=True):
        buffer.put(value)
    outputs = tuple(aligned_buffer(_now(spec)) for spec in function.outputs)
    if device is not None:
        staged = Staged(device, inputs, outputs)
        return Bound(kernel, staged.bind(kernel, workspace_of(artifact, kernel)), inputs, outputs, staged)
    workspace = _workspace(workspace_of(artifact, kernel))
    call = kernel.bind(inputs, outputs, workspace)
    if not callable(call):
        raise TypeError(f"bind answered with {type(call).__name__}, which cannot be called")
    return Bound(kernel, call, inputs, outputs, workspace=workspace)


def _now(spec: TensorSpec) -> TensorSpec:
    """Return the spec of a value in this run: kernels are tried on values of typical sizes."""
    return spec if spec.typical is None else spec.as_planned(spec.typical)


def _workspace(size: int) -> Buffer | None:
    if size == 0:
        return None
    return aligned_buffer(TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(size,)))
