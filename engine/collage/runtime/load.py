"""Make a session from a package on disk, without importing any search or measurement code."""

from __future__ import annotations

import os
from collections.abc import Callable

import onnx_ir as ir

from collage.devices.providers import Providers
from collage.devices.this_host import usable_cpus
from collage.errors import PackageDamagedError
from collage.runtime.executable import Executable
from collage.runtime.kernels.admission import PackageAdmission
from collage.runtime.kernels.loading import Relower
from collage.runtime.kernels.toolchains import InstalledToolchains
from collage.runtime.package import MOST_THREADS, Package, PackagedPlan, TrustedPackages, load_package
from collage.runtime.session import Session
from collage.runtime.shapes.opening import session_for_plans, session_over
from collage_core.errors import ModelError, UsageError
from collage_core.registry import Registry


def load(
    package: str | os.PathLike[str] | Package,
    *,
    threads: int | None = None,
    registry: Registry | None = None,
    relowering: Callable[[PackagedPlan], Relower] | None = None,
    providers: Providers | None = None,
    trusted: bool = False,
    strict: bool = False,
) -> Session:
    """Make a package runnable in this process.

    Code in it is loaded only if it was written on this machine or accepted (`collage trust`).

    Args:
        package: A `.collage` file, or one already open.
        threads: CPU threads of each kernel, up to `MOST_THREADS`; None for `threads_here`.
        registry: Where toolchains come from; None to import those the package needs and no others.
        relowering: Returns, for a plan of the package, what lowers a call site again whose artifact does not load on
            this machine; None to fail then.
        providers: Who provides devices; those installed if None.
        trusted: Whether the caller vouches for the package, having just written it.
        strict: Whether sessions refuse sizes outside the ranges that their plans are for.

    Returns:
        A session; one that chooses among several by the shapes of the inputs if the package has several plans.

    Raises:
        UsageError: If that is no number of threads.
        PackageError: If the file is no sound package.
        KernelLoadError: If a toolchain or a device is missing or refuses, or code is not to be trusted; it says which
            and why.
        LibraryClashError: If toolchains of the plan load two of a library of which a process has room for one.
        DeviceError: If a device has not the memory the plan needs.
    """
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise UsageError(f"the number of threads is from 1 to {MOST_THREADS}, not {threads!r}")
    opened = package if isinstance(package, Package) else load_package(package)
    sessions = [
        session_over(
            executable_of(
                plan,
                plan.model,
                threads=threads_here(opened) if threads is None else threads,
                registry=registry,
                relower=None if relowering is None else relowering(plan),
                providers=providers,
                trusted=trusted,
            ),
            strict=strict,
        )
        for plan in opened.plans
    ]
    return session_for_plans(sessions, [plan.input_shapes for plan in opened.plans])


def executable_of(
    plan: PackagedPlan,
    model: ir.Model,
    *,
    threads: int,
    registry: Registry | None = None,
    relower: Relower | None = None,
    providers: Providers | None = None,
    trusted: bool = False,
) -> Executable:
    """Load the kernels of a packaged plan, the only way to: it decides what of the package may be loaded.

    Args:
        plan: The plan.
        model: Its model, or a copy with more outputs.
        threads: CPU threads of each kernel.
        registry: See `load`.
        relower: Lowers a call site again whose artifact does not load on this machine; None to fail then.
        providers: See `load`.
        trusted: See `load`.

    Raises:
        PackageError: See `load`, which says what else is raised.
    """
    toolchains = InstalledToolchains(registry)
    trusted = trusted or plan.package.digest in TrustedPackages()
    try:
        return Executable.build(
            model,
            plan.artifacts,
            plan.targets,
            toolchains.load,
            threads=threads,
            relower=relower,
            weights=plan.weights,
            providers=providers,
            admission=PackageAdmission(toolchains, plan.path, trusted=trusted),
        )
    except ModelError as error:
        raise PackageDamagedError(plan.path, f"its model cannot be run: {error}") from error


def threads_here(package: Package | PackagedPlan) -> int:
    """Return as many threads as a package was measured with, but no more than this process has CPUs.

    More are only slower, and a package that names thousands would have every kernel start them.
    """
    return min(package.manifest.threads, usable_cpus())
