"""Machines the toolchain supports."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import TypeAlias

from collage_core.contract import Device, Host, Obstacle, Unsupported
from collage_cuda import OLDEST_DRIVERS, capability, usable_gpus

OLDEST = (3, 6)
"""Oldest supported version of Triton, which has everything used; the same as the pin in `pyproject.toml`."""

LEAST_CAPABILITY = (8, 0)
"""Lowest capability Triton supports (its README, "Compatibility"); it compiles for older ones without a guarantee."""

Installed: TypeAlias = Callable[[str], str | None]
"""Returns the version of an installed package by its import name; None if it is not installed."""


def installed(name: str) -> str | None:
    """See `Installed`; imports nothing."""
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""  # the distribution has another name, as CuPy's have


def oldest_driver(device: Device) -> int:
    """Return the oldest driver branch that loads code compiled for a device.

    Triton 3.9 assembles with CUDA 13's ptxas from compute capability 9.0 on and with CUDA 12's below
    (`get_ptxas` in its `backends/nvidia/compiler.py`); a driver loads code of its own major version of CUDA and
    older ones.

    Args:
        device: The device.
    """
    return OLDEST_DRIVERS[13 if capability(device) >= (9, 0) else 12]


def usable_devices(host: Host) -> tuple[Device, ...] | Unsupported:
    """Return the devices kernels can be built for and run on, or why there is none and what to do."""
    return usable_gpus(host, least=LEAST_CAPABILITY, oldest_driver=oldest_driver)


def compiler_problem(version_of: Installed = installed) -> Unsupported | None:
    """Return which of Triton and CuPy is missing or too old, and what to do; None if both are usable.

    Args:
        version_of: Returns the installed version of a distribution.
    """
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
    return None
