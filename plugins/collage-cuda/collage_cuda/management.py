"""Find NVIDIA's GPUs by their management library (NVML), without starting CUDA in the process that asks."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from collage_core.contract import Device
from collage_cuda.numbering import cuda_order

_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE and NVML_DEVICE_UUID_V2_BUFFER_SIZE in nvml.h
_VERSION_BYTES = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE


class _Memory(ctypes.Structure):
    """`nvmlMemory_t` in nvml.h."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml(Protocol):
    """The part of NVIDIA's management library that is asked; functions give 0 when all is well."""

    def __getattr__(self, name: str) -> Any:
        """One of its functions."""


def nvidia_devices(library: Nvml | None = None, order: Callable[[], Sequence[str]] = cuda_order) -> tuple[Device, ...]:
    """NVIDIA's devices, by their management library: it comes with the driver, and starts nothing on the devices.

    It numbers them by bus, CUDA may not. Devices that are alike have one order or the other; where they are not, and
    the environment does not say that CUDA goes by the bus too, CUDA is asked.

    Args:
        library: The library; the installed one if None.
        order: Gives UUIDs in CUDA's order, of those it shows; none if it cannot say.

    Returns:
        The devices; none where there is no driver, or its library does not answer.
    """
    if library is None:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return ()
    if library.nvmlInit_v2():
        return ()
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return ()
        driver = ctypes.create_string_buffer(_VERSION_BYTES)
        library.nvmlSystemGetDriverVersion(driver, ctypes.c_uint(_VERSION_BYTES))
        found = [_device(library, index, driver.value.decode()) for index in range(count.value)]
    finally:
        library.nvmlShutdown()
    return tuple(
        dataclasses.replace(device, name=f"cuda:{number}")
        for number, device in enumerate(_numbered([each for each in found if each is not None], order))
    )


def _numbered(found: list[tuple[Device, str]], order: Callable[[], Sequence[str]]) -> list[Device]:
    """The devices that CUDA shows, as it numbers them.

    Args:
        found: All of them by bus, with their UUIDs.
        order: See `nvidia_devices`.
    """
    kinds = {(device.model, device.compute_capability) for device, _ in found}
    if len(kinds) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        known = {uuid: device for device, uuid in found}
        shown = order()
        if shown and all(uuid in known for uuid in shown):
            return [known[uuid] for uuid in shown]
    return [device for device, _ in _visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))]


def _device(library: Nvml, index: int, driver: str) -> tuple[Device, str] | None:
    """A device and its UUID; None for one that does not answer, because it fell off the bus, say."""
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)):
        return None
    model, uuid = (ctypes.create_string_buffer(_NAME_BYTES) for _ in range(2))
    major, minor, memory = ctypes.c_int(), ctypes.c_int(), _Memory()
    if (
        library.nvmlDeviceGetName(handle, model, ctypes.c_uint(_NAME_BYTES))
        or library.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(_NAME_BYTES))
        or library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
        or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    ):
        return None
    device = Device(
        name=f"cuda:{index}",
        model=model.value.decode(),
        compute_capability=f"{major.value}.{minor.value}",
        driver=driver,
        memory_bytes=int(memory.total),
    )
    return device, uuid.value.decode()


def _visible(found: list[tuple[Device, str]], chosen: str | None) -> list[tuple[Device, str]]:
    """Those `CUDA_VISIBLE_DEVICES` names, by number or beginning of UUID; as for CUDA, nothing after a wrong name."""
    if chosen is None:
        return found
    left = []
    for word in filter(None, (part.strip() for part in chosen.split(","))):
        matching = [each for each in found if each[0].name == f"cuda:{word}" or each[1].startswith(word)]
        if len(matching) != 1:
            break
        left.append(matching[0])
    return left
