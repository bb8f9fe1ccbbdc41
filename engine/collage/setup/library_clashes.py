"""Detect clashing libraries, for `doctor` and before a search, and decide which toolchains they separate.

A library is requested by name, and the loader returns the first one of that name in the process ("Shared
objects are searched for", ld.so(8)): the second toolchain gets the first one's library, or parts from both.
cuDNN notices the latter (`CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH`); its frontend refuses to start if it finds
two CUDA runtimes (NVIDIA/cudnn-frontend, issue 211). In either case measurements from separate processes do not
hold in a common one, so such toolchains share no plan: each is searched with the toolchains compatible with it,
and the best plan is kept.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from collage.devices.libraries import Libraries, LibraryFile
from collage.report.facts.doctor_facts import ClashFacts
from collage.setup.targets import ToolchainStatus


def loaded_clashes(loaded: Mapping[str, Sequence[str]], known: Libraries) -> tuple[ClashFacts, ...]:
    """Return the libraries that two toolchains have loaded from different places or in different versions.

    Copies with the same content are one library.

    Args:
        loaded: Files each toolchain's own process has loaded, by the toolchain's name.
        known: The libraries to look at.
    """
    found = []
    libraries = {name: tuple(filter(None, map(known.at, paths))) for name, paths in sorted(loaded.items())}
    for one, other in itertools.combinations(libraries, 2):
        families: dict[str, tuple[LibraryFile, LibraryFile]] = {}
        for mine, theirs in itertools.product(libraries[one], libraries[other]):
            if mine.stem == theirs.stem and not mine.serves_for(theirs):
                families.setdefault(mine.family.title, (mine, theirs))
        for family, (mine, theirs) in sorted(families.items()):
            found.append(
                ClashFacts(
                    library=family,
                    between=(one, other),
                    files=(mine.path, theirs.path),
                    apart=True,
                    reason=f"{one} loads {mine.path}, {other} loads {theirs.path}, and a process has room for one",
                    remedy=f"Install both for one CUDA, with one {family}; until then no plan uses both",
                )
            )
    return tuple(found)


def kept_apart(statuses: Iterable[ToolchainStatus], clashes: Iterable[ClashFacts]) -> tuple[ToolchainStatus, ...]:
    """Return the toolchain statuses with each target also excluding the toolchains its libraries clash with."""
    against: dict[str, set[str]] = {}
    for clash in clashes:
        for one, other in itertools.permutations(clash.between, 2):
            against.setdefault(one, set()).add(other)

    def apart(status: ToolchainStatus) -> ToolchainStatus:
        strangers = frozenset(against.get(status.toolchain.name, ()))
        targets = {each: dataclasses.replace(each, excludes=each.excludes | strangers) for each in status.targets}
        return dataclasses.replace(
            status, targets=tuple(targets.values()), selected=tuple(targets[each] for each in status.selected)
        )

    return tuple(map(apart, statuses))


def installed_clashes(
    known: Libraries,
    wheels: Iterable[importlib.metadata.Distribution] | None = None,
    search_path: str | None = None,
    cache: Iterable[str] | None = None,
) -> tuple[ClashFacts, ...]:
    """Return what is wrong with installed libraries, whichever toolchain loads them. Nothing is loaded.

    Distributions that bring the same file, of which one has overwritten the other's; libraries that `LD_LIBRARY_PATH`
    has the loader prefer to those beside them in a wheel; and parts of a library that a wheel lacks and the system
    has, in another version.

    Args:
        known: The libraries to look at.
        wheels: Installed distributions; all that bring such libraries if None.
        search_path: What `LD_LIBRARY_PATH` says; the environment's if None.
        cache: Files that the system's loader knows; those `ldconfig` prints if None.
    """
    if wheels is None:
        bringing = tuple(name for family in known.families for name in family.distributions)
        named = importlib.metadata.distributions()
        wheels = [each for each in named if (each.name or "").lower().startswith(bringing)]
    owners: dict[str, list[str]] = {}
    for wheel in wheels:
        for file in wheel.files or ():
            if known.at(str(file)) is not None:
                owners.setdefault(str(file.locate()), []).append(wheel.name)
    libraries = [library for path in owners if (library := known.at(path)) is not None]
    folders = (os.environ.get("LD_LIBRARY_PATH", "") if search_path is None else search_path).split(os.pathsep)
    cached = _loader_cache() if cache is None and libraries else cache or ()
    system = [library for path in cached if (library := known.at(path)) is not None]
    return (*_overwritten(owners, known), *_preferred(libraries, folders), *_completed(libraries, system))


def _overwritten(owners: Mapping[str, Sequence[str]], known: Libraries) -> Iterable[ClashFacts]:
    shared: dict[tuple[str, ...], list[str]] = {}
    for path, names in owners.items():
        if len(set(names)) > 1:
            shared.setdefault(tuple(sorted(set(names))), []).append(path)
    for names, paths in sorted(shared.items()):
        library = known.at(paths[0])
        assert library is not None
        both = " and ".join(names)
        yield ClashFacts(
            library=library.family.title,
            between=names,
            files=tuple(sorted(paths)),
            reason=f"{both} bring the same file, {paths[0]}, so one has overwritten the other's",
            remedy=f"Uninstall both and install the one for your CUDA again: pip uninstall {' '.join(names)}",
        )


def _preferred(libraries: Iterable[LibraryFile], folders: Iterable[str]) -> Iterable[ClashFacts]:
    said: set[tuple[str, str]] = set()
    for library, folder in itertools.product(libraries, dict.fromkeys(filter(None, folders))):
        path = Path(folder) / library.name
        other = LibraryFile(str(path), library.family, library.stem, library.major)
        if not path.exists() or library.serves_for(other) or (folder, library.family.stem) in said:
            continue
        said.add((folder, library.family.stem))
        yield ClashFacts(
            library=library.family.title,
            between=("LD_LIBRARY_PATH", str(Path(library.path).parent)),
            files=(str(path), library.path),
            reason=f"LD_LIBRARY_PATH has the loader take {path} where {library.path} is meant",
            remedy=f"Take {folder} out of LD_LIBRARY_PATH, or uninstall the wheel",
        )


def _completed(libraries: Iterable[LibraryFile], system: Iterable[LibraryFile]) -> Iterable[ClashFacts]:
    """Yield the optional parts that a library would open from the system; the first of each family."""
    own = [each for each in libraries if each.family.opens_parts]
    names, said = {each.name for each in own}, set[str]()
    for other in system:
        mine = next((each for each in own if each.family == other.family and each.major == other.major), None)
        if mine is None or other.name in names or other.family.stem in said:
            continue
        said.add(other.family.stem)
        title = other.family.title
        yield ClashFacts(
            library=title,
            between=("system", str(Path(mine.path).parent)),
            files=(other.path, mine.path),
            reason=f"the wheel's {mine.path} lacks {other.name} and would be given the system's, {other.path}",
            remedy=f"Uninstall the system's {title}, or install a wheel of its version",
        )


def _loader_cache() -> tuple[str, ...]:
    """Return the library files in the loader's cache, as `ldconfig -p` prints them after arrows."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return ()
    done = subprocess.run([program, "-p"], capture_output=True, text=True, check=False, timeout=30)
    return tuple(line.partition(" => ")[2] for line in done.stdout.splitlines() if " => " in line)
