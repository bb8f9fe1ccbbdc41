"""Which machines the toolchain is for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from typing import TypeAlias

from collage_core.contract import Device, Obstacle, Unsupported

OLDEST = (3, 6)
"""First version of Triton with everything that is called; the same as the pin in `pyproject.toml`."""

LEAST_CAPABILITY = (8, 0)
"""What Triton supports (its README, "Compatibility"); it compiles for older ones, without a promise."""

Installed: TypeAlias = Callable[[str], str | None]
"""Version of an installed package by the name it is imported by; None if there is none."""


def installed(name: str) -> str | None:
    """See `Installed`; imports nothing."""
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""  # the distribution has another name, as CuPy's have


def capability(device: Device) -> tuple[int, int]:
    """Its compute capability as numbers, `(0, 0)` if it has none.

    Examples:
        >>> capability(Device(name="cuda:0", model="", compute_capability="9.0", driver="", memory_bytes=0))
        (9, 0)
    """
    major, _, minor = device.compute_capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def oldest_driver(device: Device) -> int:
    """First branch of the driver that loads what is made for a device.

    Triton 3.9 assembles with CUDA 13's ptxas from compute capability 9.0 on and with CUDA 12's below
    (`get_ptxas` in its `backends/nvidia/compiler.py`); a driver loads code of its own major version of CUDA and older
    ones, from these branches on ("CUDA Compatibility", minor version compatibility, table 1).

    Args:
        device: The device.
    """
    return 580 if capability(device) >= (9, 0) else 525


def usable_devices(devices: Sequence[Device], version_of: Installed = installed) -> tuple[Device, ...] | Unsupported:
    """The devices kernels can be built for and run on, or why there is none and what to do.

    Args:
        devices: What the machine has.
        version_of: Says what is installed.
    """
    found = [device for device in devices if device.kind == "cuda"]
    if not found:
        return Unsupported(
            "this machine shows no NVIDIA GPU: it has none, no driver for it (is there libnvidia-ml.so.1, does "
            "nvidia-smi list one?), or CUDA_VISIBLE_DEVICES hides it",
            Obstacle.NO_DEVICE,
        )
    capable = [device for device in found if capability(device) >= LEAST_CAPABILITY]
    if not capable:
        shown = ", ".join(f"{each.name} is {each.model} of {each.compute_capability}" for each in found)
        least = ".".join(map(str, LEAST_CAPABILITY))
        return Unsupported(f"Triton needs compute capability {least} or newer; {shown}", Obstacle.COMPUTE_CAPABILITY)
    driven = tuple(device for device in capable if _branch(device) >= oldest_driver(device))
    if not driven:
        [first, *_] = capable
        return Unsupported(
            f"NVIDIA's driver {first.driver} is too old for {first.model}; install {oldest_driver(first)} or newer",
            Obstacle.DRIVER_TOO_OLD,
        )
    version = version_of("triton")
    if version is None:
        return Unsupported(
            "Triton, which compiles the kernels, is not installed; pip install 'collage-triton[compiler]'",
            Obstacle.NO_LIBRARY,
        )
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        reason = f"triton {version} is too old; pip install 'triton>={OLDEST[0]}.{OLDEST[1]}'"
        return Unsupported(reason, Obstacle.LIBRARY_VERSION)
    if version_of("cupy") is None:
        return Unsupported(
            "CuPy, which keeps buffers on the device, is not installed; pip install 'collage-triton[cuda13]', or "
            "cupy-cuda12x for a driver of CUDA 12",
            Obstacle.NO_LIBRARY,
        )
    return driven


def _branch(device: Device) -> int:
    branch = device.driver.partition(".")[0]
    return int(branch) if branch.isdigit() else 0
