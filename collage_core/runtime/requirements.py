"""Whether this machine has what an artifact needs, checked before its toolchain is asked to load it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from collage_core.contract import Host, Requirement, Supported, Unsupported

VersionOf = Callable[[str], str | None]
"""Version of an installed distribution, or None."""


def installed_version(distribution: str) -> str | None:
    """Version of a distribution installed beside this interpreter, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_requirements(
    requirements: Iterable[Requirement], host: Host, version_of: VersionOf = installed_version
) -> Supported | Unsupported:
    """Whether a machine meets all of an artifact's requirements.

    Libraries and CPU features are checked here. Devices and drivers are left to the toolchain's own loader:
    core knows none of them.

    Args:
        requirements: What the artifact asks for.
        host: The machine.
        version_of: Looks up installed distributions.

    Returns:
        Supported, or every requirement that does not hold.
    """
    unmet = [reason for requirement in requirements if (reason := _unmet(requirement, host, version_of))]
    return Unsupported("; ".join(unmet)) if unmet else Supported()


def _unmet(requirement: Requirement, host: Host, version_of: VersionOf) -> str:
    if requirement.kind == "isa":
        has = requirement.name.lower() in host.cpu_flags
        return "" if has else f"it needs the CPU feature {requirement.name}, which {host.cpu} lacks"
    if requirement.kind != "library":
        return ""
    wanted = f"{requirement.name}{requirement.specifier}"
    version = version_of(requirement.name)
    if version is None:
        return f"it needs {wanted}, which is not installed"
    try:
        # what runs here is judged as it is: a pre-release is no reason to refuse
        fits = SpecifierSet(requirement.specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return f"it asks for {wanted}, which is no version specifier"
    return "" if fits else f"it needs {wanted}, {version} is installed"
