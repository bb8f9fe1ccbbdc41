"""Where a plugin and its fingerprints come from."""

from __future__ import annotations

import contextlib
import importlib.metadata
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from collage_core.contract import Target
from collage_core.hookspecs import ENTRY_POINT_GROUP
from collage_core.registry import Toolchain

_NO_LIBRARY: Final = frozenset({"ml-dtypes", "numpy", "onnx", "onnx-ir", "pluggy"})
"""Distributions that plugins ask for and do not run kernels by."""


def reference_to(toolchain: Toolchain) -> str:
    """Return `module:attribute` of a plugin, for another process; empty for an object created in place."""
    if ":" in toolchain.distribution:  # it was loaded by that
        return toolchain.distribution
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=toolchain.name):
        if toolchain.distribution and entry.module == toolchain.module:
            return entry.value
    return ""


def version_lacking(toolchain: Toolchain, target: Target) -> str:
    """Return that a fingerprint has no version of what the plugin's distribution asks for; empty if it has one.

    The version of a library may be written otherwise than that of its distribution: its first two numbers count.
    """
    try:
        asked = importlib.metadata.requires(toolchain.distribution.split(" ")[0]) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""
    versions = {}
    for each in map(Requirement, asked):
        name = canonicalize_name(each.name)
        if each.marker is None and not name.startswith("collage-"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
    numbers = [".".join(version.split(".")[:2]) for version in versions.values()]
    libraries = [f"{name} {version}" for name, version in versions.items() if name not in _NO_LIBRARY]
    if not libraries or any(number in target.fingerprint for number in numbers):
        return ""
    known = " or ".join(libraries)
    return f"the fingerprint {target.fingerprint!r} of {target.name} has not the version of {known}"
