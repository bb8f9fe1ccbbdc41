"""Machine checks that plugins for NVIDIA GPUs make before they load a library."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from collage_core.contract import Device, Host, Joins, Obstacle, Target, Unsupported

OLDEST_DRIVERS: Mapping[int, int] = MappingProxyType({13: 580, 12: 525})
"""Oldest driver branch that supports each major version of CUDA, newest first.

Source: "CUDA Compatibility", minor version compatibility, table 1.
"""

TENSOR_CORES: Mapping[str, tuple[int, int]] = MappingProxyType({"tf32": (8, 0), "fp16": (7, 0), "bf16": (8, 0)})
"""First compute capability whose tensor cores accept operands of a precision.

Volta for float16, Ampere and later for all of them (CUDA C++ Programming Guide, "Element Types and Matrix Sizes" of
`wmma`).
"""


def capability(device: Device) -> tuple[int, int]:
    """Compute capability as numbers, `(0, 0)` of a device that has none.

    Examples:
        >>> capability(Device(name="cuda:0", model="", compute_capability="12.1", driver="", memory_bytes=0))
        (12, 1)
    """
    major, _, minor = device.compute_capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def cuda_majors(driver: str) -> tuple[int, ...]:
    """Return the major versions of CUDA that a driver supports, newest first.

    All known versions are returned if the driver's version cannot be parsed.

    Args:
        driver: Version of the driver.

    Examples:
        >>> cuda_majors("580.65.06"), cuda_majors("550.54"), cuda_majors("470.82")
        ((13, 12), (12,), ())
    """
    branch = _branch(driver)
    return tuple(major for major, oldest in OLDEST_DRIVERS.items() if branch is None or branch >= oldest)


def wheel_driver(distribution: str) -> int | None:
    """Return the oldest driver branch that supports an installed NVIDIA wheel; None if unknown.

    Args:
        distribution: Name of the wheel, with `{}` in place of the major version of CUDA.
    """
    for major, oldest in OLDEST_DRIVERS.items():
        try:
            importlib.metadata.version(distribution.format(major))
        except importlib.metadata.PackageNotFoundError:
            continue
        return oldest
    return None


def driver_problem(device: Device, oldest: int | None) -> Unsupported | None:
    """Return why a device's driver is too old; None if it is new enough, or its version is unknown.

    Args:
        device: The device.
        oldest: Oldest supported driver branch; None if unknown.
    """
    branch = _branch(device.driver)
    if oldest is None or branch is None or branch >= oldest:
        return None
    return Unsupported(
        f"NVIDIA's driver {device.driver} is too old; install {oldest} or newer", Obstacle.DRIVER_TOO_OLD
    )


def usable_gpus(
    host: Host,
    *,
    least: tuple[int, int] = (0, 0),
    oldest_driver: Callable[[Device], int | None] = lambda device: min(OLDEST_DRIVERS.values()),
) -> tuple[Device, ...] | Unsupported:
    """Return the NVIDIA GPUs a toolchain can support, or why there is none and what to do.

    Args:
        host: The machine.
        least: Lowest supported compute capability.
        oldest_driver: Returns the oldest driver branch that runs the toolchain's code or libraries on a device; None
            if unknown.
    """
    found = [device for device in host.devices if device.kind == "cuda"]
    if not found:
        return Unsupported(
            "this machine shows no NVIDIA GPU: it has none, no driver for it (is there libnvidia-ml.so.1, does "
            "nvidia-smi list one?), or CUDA_VISIBLE_DEVICES hides it",
            Obstacle.NO_DEVICE,
        )
    capable = [device for device in found if capability(device) >= least]
    if not capable:
        shown = ", ".join(f"{each.name} is {each.model} of {each.compute_capability}" for each in found)
        return Unsupported(
            f"it needs compute capability {least[0]}.{least[1]} or newer; {shown}", Obstacle.COMPUTE_CAPABILITY
        )
    problems = {device: driver_problem(device, oldest_driver(device)) for device in capable}
    driven = tuple(device for device, problem in problems.items() if problem is None)
    return driven or next(problem for problem in problems.values() if problem is not None)


def gpu_targets(
    devices: Iterable[Device],
    *,
    toolchain: str,
    fingerprint: str,
    joins: Joins,
    precisions: Iterable[str],
    rounds: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> list[Target]:
    """Create the targets of GPUs: the plain target of each first, then the precisions its tensor cores support.

    Args:
        devices: The GPUs.
        toolchain: Name of the toolchain.
        fingerprint: As in `Target`.
        joins: As in `Target`.
        precisions: Values of the option `precision`, among those in `TENSOR_CORES`.
        rounds: Operators rounded by each precision, as in `Target`; unknown for a precision that is missing.
    """
    known, wanted = tuple(devices), tuple(precisions)
    plain = [Target(toolchain=toolchain, device=each.name, fingerprint=fingerprint, joins=joins) for each in known]
    lower = [
        Target(
            toolchain=toolchain,
            device=device.name,
            options=(("precision", precision),),
            fingerprint=fingerprint,
            joins=joins,
            exact=False,
            rounds=frozenset(rounds[precision]) if precision in rounds else None,
        )
        for device in known
        for precision in wanted
        if capability(device) >= TENSOR_CORES[precision]
    ]
    return plain + lower


def _branch(driver: str) -> int | None:
    branch = driver.partition(".")[0]
    return int(branch) if branch.isdigit() else None
