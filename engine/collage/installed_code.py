"""Identify installed code: a release by its version, what is used from a source tree by the content of its files."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from collage_core.registry import Toolchain

OWN = ("collage", "collage_core")
"""Import packages of the product."""
_DIGITS = 12


def entry_packages(distribution: Distribution) -> set[str]:
    """Return the import packages of a distribution's entry points in the groups `collage.*`."""
    return {
        entry.module.partition(".")[0] for entry in distribution.entry_points if entry.group.partition(".")[0] == OWN[0]
    }


def code_hash(package: str) -> str:
    """Return the SHA-256 of the names and the content of a package's files, or of a module; empty if there are none.

    Args:
        package: Name of the import package; a submodule stands for itself.
    """
    digest = hashlib.sha256()
    found = False
    for name, path in _files(package):
        found = True
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest() if found else ""


def plugin_version(toolchain: Toolchain) -> str:
    """Return what a toolchain's results belong to: the version of its plugin, and of the device provider it requires.

    Of a release that is the distribution and its version. A plugin that is used from a source tree has the hash of its
    files besides, and one without a distribution has nothing else.

    Args:
        toolchain: The toolchain.

    Returns:
        Text for people, too, such as `"collage-cublas 1.0, collage-cuda 1.1+3f2a8c01d9be"`; empty if nothing is known.
    """
    distribution = _distribution(toolchain.distribution.rpartition(" ")[0])
    package = toolchain.module.partition(".")[0]
    if distribution is None:
        code = code_hash(toolchain.module)
        return f"{toolchain.module}+{code[:_DIGITS]}" if code else ""
    parts = [_version(distribution, package)]
    for required in _required(distribution):
        parts += [_version(required, each) for each in sorted(entry_packages(required) - {*OWN, package})]
    return ", ".join(parts)


def _version(distribution: Distribution, package: str) -> str:
    version = f"{distribution.name} {distribution.version}"
    return version if _is_released(distribution, package) else f"{version}+{code_hash(package)[:_DIGITS]}"


def _is_released(distribution: Distribution, package: str) -> bool:
    """Return whether a package was installed with its distribution, which lists its files then.

    An editable installation lists the file that points to the source tree; a source tree lists nothing.
    """
    listed = (distribution.read_text("RECORD") or "").splitlines()
    return any(line.startswith((f"{package}/", f"{package}.py,")) for line in listed)


def _required(distribution: Distribution) -> Iterator[Distribution]:
    for requirement in sorted(distribution.requires or ()):
        named = re.match(r"[\w.-]+", requirement)
        found = _distribution(named[0]) if named else None
        if found is not None:
            yield found


def _distribution(name: str) -> Distribution | None:
    try:
        return importlib.metadata.distribution(name) if name else None
    except importlib.metadata.PackageNotFoundError:
        return None


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a package with their names in it, sorted; compiled ones that Python makes are left out."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a parent is missing; a module that was made by hand has no spec
        return
    if spec is None:
        return
    for place in map(Path, spec.submodule_search_locations or ()):
        for path in sorted(place.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(place)), path
    if not spec.submodule_search_locations and spec.origin is not None and Path(spec.origin).is_file():
        yield "", Path(spec.origin)
