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
    """The functions used of NVIDIA's management library; each returns 0 on success."""

    def __getattr__(self, name: str) -> Any:
        """Return one of the library's functions."""


def nvidia_devices(library: Nvml | None = None, order: Callable[[], Sequence[str]] = cuda_order) -> tuple[Device, ...]:
    """Return NVIDIA's devices as reported by NVML.

    NVML comes with the driver and does not create a CUDA context. NVML numbers devices by PCI bus, which may differ
    from CUDA's order. Identical devices need no reordering; with different devices CUDA is queried, unless the
    environment sets CUDA's order to the PCI bus as well.

    Args:
        library: NVML; the installed library if None.
        order: Returns the UUIDs of visible devices in CUDA's order; empty if unknown.

    Returns:
        The devices; empty if there is no driver, or NVML fails.
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
    """Return the devices visible to CUDA, in CUDA's order.

    Args:
        found: All devices by PCI bus, with their UUIDs.
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
    """Query a device and its UUID; return None if it does not respond, e.g. because it fell off the bus."""
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
    """Filter devices by `CUDA_VISIBLE_DEVICES`, whose entries are numbers or UUID prefixes.

    As in CUDA, entries after an invalid one are ignored.
    """
    if chosen is None:
        return found
    left = []
    for word in filter(None, (part.strip() for part in chosen.split(","))):
        matching = [each for each in found if each[0].name == f"cuda:{word}" or each[1].startswith(word)]
        if len(matching) != 1:
            break
        left.append(matching[0])
    return left
