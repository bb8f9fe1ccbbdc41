"""Determine the order in which CUDA numbers a machine's GPUs, without starting CUDA in the calling process.

By default CUDA puts the fastest device first, by a rule of its own, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set
("CUDA environment variables" in its programming guide); its management library uses the order of the bus. Only CUDA
knows its order, and starting CUDA takes memory on every device for the life of the process; so a short-lived separate
process queries it. This file is also what that process runs, alone: it imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import uuid
from typing import Any

_LIMIT_S = 60.0
_UUID_BYTES = 16  # CUuuid in cuda.h


def cuda_order() -> tuple[str, ...]:
    """Return the UUIDs of the devices visible to CUDA in this process, in CUDA's order.

    CUDA is queried in a subprocess.

    Returns:
        UUIDs in the form that NVIDIA's tools print; empty if CUDA cannot be initialised.
    """
    command = [sys.executable, "-I", __file__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(done.stdout.split()) if done.returncode == 0 else ()


def device_uuids(driver: Any) -> tuple[str, ...]:
    """Return the UUIDs of the devices visible to CUDA, by initialising CUDA in this process.

    Args:
        driver: CUDA's driver library, `libcuda`.

    Raises:
        OSError: If a driver call fails.
    """

    def call(function: str, *arguments: Any) -> None:
        if status := getattr(driver, function)(*arguments):
            raise OSError(f"{function}: {status}")

    call("cuInit", ctypes.c_uint(0))
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    found = []
    for number in range(count.value):
        device, raw = ctypes.c_int(), ctypes.create_string_buffer(_UUID_BYTES)
        call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
        call("cuDeviceGetUuid", raw, device)
        found.append(f"GPU-{uuid.UUID(bytes=raw.raw)}")
    return tuple(found)


if __name__ == "__main__":
    print("\n".join(device_uuids(ctypes.CDLL("libcuda.so.1"))))
