"""Check whether this machine meets an artifact's requirements, before its toolchain loads it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from collage_core.contract import Device, Host, Requirement, Supported, Unsupported

VersionOf = Callable[[str], str | None]
"""Returns the version of an installed distribution, or None."""


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution installed for this interpreter, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_requirements(
    requirements: Iterable[Requirement],
    host: Host,
    version_of: VersionOf = installed_version,
    *,
    device: str = "cpu",
) -> Supported | Unsupported:
    """Check whether a machine meets all of an artifact's requirements.

    Checks libraries, CPU features and requirements on the device. Kinds of requirements that a later version of the
    contract may add are left to the toolchain's own loader.

    Args:
        requirements: The artifact's requirements.
        host: The machine to check.
        version_of: Looks up installed distributions.
        device: The device of the artifact's target.

    Returns:
        Supported, or every requirement that is not met.
    """
    unmet = [reason for requirement in requirements if (reason := _unmet(requirement, host, version_of, device))]
    return Unsupported("; ".join(dict.fromkeys(unmet))) if unmet else Supported()


def _unmet(requirement: Requirement, host: Host, version_of: VersionOf, device: str) -> str:
    match requirement.kind:
        case "isa":
            has = requirement.name.lower() in host.cpu_flags
            return "" if has else f"it needs the CPU feature {requirement.name}, which {host.cpu} lacks"
        case "library":
            version = version_of(requirement.name)
            wanted = f"{requirement.name}{requirement.specifier}"
            if version is None:
                return f"it needs {wanted}, which is not installed"
            return _misfit(requirement.specifier, version, wanted, f"{version} is installed")
        case "device" | "compute_capability" | "driver" if device != "cpu":
            return _unmet_by_device(requirement, host.device(device), device)
    return ""


def _unmet_by_device(requirement: Requirement, found: Device | None, device: str) -> str:
    if found is None:
        return f"it needs a device {device}, which this machine does not have"
    if requirement.kind == "device":
        fits = requirement.name == found.model
        return "" if fits else f"it was made for {requirement.name}, {device} is {found.model}"
    if requirement.name != found.kind:
        return f"it needs {requirement.name}, {device} is none"
    if requirement.kind == "driver":
        wanted, version = f"a driver {requirement.specifier}", found.driver
    else:
        wanted, version = f"compute capability {requirement.specifier}", found.compute_capability
    return _misfit(requirement.specifier, version, wanted, f"{found.model} has {version}")


def _misfit(specifier: str, version: str, wanted: str, has: str) -> str:
    """Return why a version does not match a specifier; empty if it does."""
    try:
        # what runs here is judged as it is: a pre-release is no reason to refuse
        fits = SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return f"it asks for {wanted}, which is no version specifier"
    except InvalidVersion:  # of packaging before 26; later ones say that it does not fit
        fits = False
    return "" if fits else f"it needs {wanted}, {has}"
