"""In which order CUDA numbers a machine's GPUs, without starting it in the process that asks.

CUDA puts the fastest first, by a rule of its own, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` says otherwise ("CUDA
environment variables" in its programming guide), and its management library goes by the bus. Only CUDA can tell, and
starting it takes memory on every device for as long as the process lives; so another process asks and ends. This file
is also what that process runs, alone: it imports nothing but the standard library.
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
    """UUIDs of the devices that CUDA shows to this process, by its numbers, as NVIDIA's tools write them.

    Returns:
        None of them where CUDA does not start.
    """
    command = [sys.executable, "-I", __file__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(done.stdout.split()) if done.returncode == 0 else ()


def device_uuids(driver: Any) -> tuple[str, ...]:
    """The same, in this process.

    Args:
        driver: CUDA's driver, `libcuda`.

    Raises:
        OSError: If it refuses.
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
