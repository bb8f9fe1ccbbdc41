"""Make a session from a package on disk, without importing any search or measurement code."""

from __future__ import annotations

import os
from collections.abc import Callable

from collage.devices.providers import Providers
from collage.runtime.executable import Executable
from collage.runtime.kernels.loading import Relower
from collage.runtime.package import MOST_THREADS, Package, PackagedPlan, load_package
from collage.runtime.packaged_kernels import executable_of, threads_here
from collage.runtime.places import Reserve
from collage.runtime.session import Session
from collage.runtime.shapes.opening import session_for_plans
from collage_core.errors import UsageError
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
    plans = opened.plans

    def executable(place: int, reserve: Reserve | None) -> Executable:
        return executable_of(
            plans[place],
            plans[place].model,
            threads=threads_here(opened) if threads is None else threads,
            registry=registry,
            relower=None if relowering is None else relowering(plans[place]),
            providers=providers,
            trusted=trusted,
            reserve=reserve,
        )

    return session_for_plans(executable, [plan.input_shapes for plan in plans], strict=strict)
