"""Stage a device kernel's values in a worker: upload them before a checked call, download them after it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from collage.devices.opening import buffer_on
from collage_core.contract import BoundCall, Buffer, DeviceStream, Kernel, TensorSpec


class Staged:
    """Device buffers, each with a counterpart in host memory.

    Args:
        device: The device.
        inputs: Kernel inputs, in host memory.
        outputs: Kernel outputs, in host memory.
        aligned: Whether device buffers are aligned as core's own; otherwise each starts an element later, as a
            caller's array may.

    Raises:
        DeviceError: If the device has not enough memory.
    """

    def __init__(
        self, device: DeviceStream, inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, aligned: bool = True
    ) -> None:
        self._device = device
        self._here = (*inputs, *outputs)
        place = buffer_on if aligned else _an_element_later
        self._there = tuple(place(device, buffer.spec) for buffer in self._here)
        self._count = len(inputs)
        self._workspaces: list[Buffer] = []  # the caller owns them, so a kernel may know nothing but their addresses

    def bind(self, kernel: Kernel, workspace_bytes: int) -> BoundCall:
        """Bind a kernel to the device buffers, filled from their host counterparts.

        Further calls of the same kernel may be bound, with their own weights: inputs and outputs keep their buffers,
        and the workspace is shared, as in a plan, which has one for all kernels that run in sequence.
        """
        workspace = self._workspace(workspace_bytes) if workspace_bytes else None
        self._put()
        self._device.synchronise()  # these places go if binding fails, and nothing enqueued may name them then
        return kernel.bind(self._there[: self._count], self._there[self._count :], workspace)

    def run(self, call: BoundCall) -> None:
        """Run one call: copy the host buffers to the device, call, and copy all back, inputs included.

        Raises:
            DeviceError: If the device fails.
        """
        self._put()
        call()
        for here, there in zip(self._here, self._there, strict=True):
            self._device.read(here.array, there.pointer)
        self._device.synchronise()

    def _workspace(self, nbytes: int) -> Buffer:
        if not self._workspaces or self._workspaces[-1].spec.nbytes < nbytes:
            spec = TensorSpec(name="workspace", dtype=ir.DataType.UINT8, shape=(nbytes,))
            self._workspaces.append(buffer_on(self._device, spec))
        return self._workspaces[-1]

    def _put(self) -> None:
        for here, there in zip(self._here, self._there, strict=True):
            self._device.write(there.pointer, here.array)


def _an_element_later(device: DeviceStream, spec: TensorSpec) -> Buffer:
    memory = device.allocate(spec.nbytes + spec.numpy_dtype.itemsize)
    start = memory.pointer + spec.numpy_dtype.itemsize
    return Buffer.at(spec, device=device.name, pointer=start, keeps=memory)
