"""A kernel bound, in a worker, to buffers that hold the values it is tried on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir

from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.staged import Staged
from collage.measure.worker.verdicts import aligned_buffer
from collage_core.contract import Artifact, Buffer, DeviceStream, Kernel, KernelFunction, TensorSpec, workspace_of


def bound_to(
    kernel: Kernel, artifact: Artifact, function: KernelFunction, values: Sequence[Any], device: DeviceStream | None
) -> Bound:
    """Bind a kernel to buffers of its own.

    Args:
        kernel: The kernel.
        artifact: What it was loaded from.
        function: The candidate.
        values: What its inputs are to hold.
        device: The device it runs on; None for the CPU.

    Raises:
        TypeError: If what it answers cannot be called.
    """
    inputs = tuple(aligned_buffer(spec) for spec in function.inputs)
    for buffer, value in zip(inputs, values, strict=True):
        buffer.put(value)
    outputs = tuple(aligned_buffer(spec) for spec in function.outputs)
    if device is not None:
        staged = Staged(device, inputs, outputs)
        return Bound(staged.bind(kernel, workspace_of(artifact, kernel)), inputs, outputs, staged)
    workspace = _workspace(workspace_of(artifact, kernel))
    call = kernel.bind(inputs, outputs, workspace)
    if not callable(call):
        raise TypeError(f"bind answered with {type(call).__name__}, which cannot be called")
    return Bound(call, inputs, outputs, workspace=workspace)


def _workspace(size: int) -> Buffer | None:
    if size == 0:
        return None
    return aligned_buffer(TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(size,)))
