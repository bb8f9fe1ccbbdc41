"""Machines the toolchain compiles for, and what it needs there."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from collage_core.contract import Host, Obstacle, Requirement, Supported, Unsupported
from collage_halide import hl

OLDEST = (21, 0)
"""Oldest supported version of Halide, the same as the pin in `pyproject.toml`."""

_AVX = ("avx", "sse4_2", "popcnt")
_AVX2 = (*_AVX, "avx2", "bmi1", "bmi2", "abm", "movbe", "f16c", "fma")
_AVX512 = (*_AVX2, "avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw")
_X86 = (
    (("sse4_1",), "SSE41"),
    (_AVX, "AVX"),
    (("f16c",), "F16C"),
    (("fma",), "FMA"),
    (_AVX2, "AVX2"),
    (_AVX512, "AVX512"),
    (_AVX512, "AVX512_Skylake"),
)
"""Features of Halide's targets, and the CPU flags that each needs (`src/Target.h`, `Target::Feature`).

With AVX, AVX2 and AVX-512 code is for the processors that had these first (`mcpu_target` in `src/CodeGen_X86.cpp`:
Sandy Bridge, Haswell, Skylake), whose other instructions LLVM may use, too.
"""
SYSTEMS = {"Linux x86_64": "X86", "Linux aarch64": "ARM"}


def check_host(host: Host) -> Supported | Unsupported:
    """Check that code can be compiled for a machine and loaded there."""
    if host.system in SYSTEMS:
        return Supported()
    return Unsupported(
        f"kernels are shared libraries of {' or '.join(SYSTEMS)}; this is {host.system}", Obstacle.NO_DEVICE
    )


def flags_of(host: Host) -> tuple[str, ...]:
    """Return the CPU flags that code for a machine makes use of, and so needs."""
    if SYSTEMS.get(host.system) != "X86":
        return ()
    found: dict[str, None] = {}
    for flags, _ in _X86:
        if host.cpu_flags.issuperset(flags):
            found.update(dict.fromkeys(flags))
    return tuple(found)


def requirements(host: Host) -> tuple[Requirement, ...]:
    """Return what a machine needs to run code that is compiled for another."""
    return tuple(Requirement(kind="isa", name=flag) for flag in flags_of(host))


def vector_bytes(host: Host) -> int:
    """Return the width of a machine's vectors."""
    if SYSTEMS.get(host.system) != "X86":
        return 16
    if host.cpu_flags.issuperset(_AVX512):
        return 64
    return 32 if host.cpu_flags.issuperset(_AVX2) else 16


def halide_target(host: Host, *more: str) -> Any:
    """Return Halide's target for a machine.

    Args:
        host: The machine.
        more: Names of further features.
    """
    architecture = SYSTEMS[host.system]
    names = [feature for flags, feature in _X86 if architecture == "X86" and host.cpu_flags.issuperset(flags)]
    features = [getattr(hl.TargetFeature, name) for name in (*names, *more)]
    return hl.Target(hl.TargetOS.Linux, getattr(hl.TargetArch, architecture), 64, features)


def version() -> str | None:
    """Return the version of Halide; None if it is not installed. Imports nothing of it."""
    if importlib.util.find_spec("halide") is None:
        return None
    return importlib.metadata.version("halide")


def problem() -> Unsupported | None:
    """Return what is missing to build kernels, and what to do; None if nothing is."""
    found = version()
    if found is None:
        return Unsupported("Halide is not installed; pip install halide", Obstacle.NO_LIBRARY)
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Unsupported(f"halide {found} is too old; pip install 'halide>={wanted}'", Obstacle.LIBRARY_VERSION)
    if linker() is None:
        return Unsupported(
            "there is no linker `ld`; install binutils, or pip install ziglang, which brings one", Obstacle.NO_LIBRARY
        )
    return None


@functools.cache
def linker() -> Sequence[str] | None:
    """Return the command of a linker: `ld`, or that of the wheel `ziglang`; None if there is neither."""
    if found := shutil.which("ld"):
        return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "ld.lld")
    return None


def linker_name() -> str:
    """Return what links: the program, or the wheel with its version."""
    command = linker()
    if command is None:
        return "no linker"
    return "ld" if len(command) == 1 else f"ziglang {importlib.metadata.version('ziglang')}"
