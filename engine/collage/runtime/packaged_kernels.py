"""Load the kernels of a packaged plan: what of a package may be loaded is decided here."""

from __future__ import annotations

import onnx_ir as ir

from collage.devices.providers import Providers
from collage.devices.this_host import usable_cpus
from collage.errors import PackageDamagedError
from collage.runtime.executable import Executable
from collage.runtime.kernels.admission import PackageAdmission
from collage.runtime.kernels.loading import Relower
from collage.runtime.kernels.toolchains import InstalledToolchains
from collage.runtime.package import Package, PackagedPlan, TrustedPackages
from collage.runtime.places import Reserve
from collage_core.errors import ModelError
from collage_core.registry import Registry


def executable_of(
    plan: PackagedPlan,
    model: ir.Model,
    *,
    threads: int,
    registry: Registry | None = None,
    relower: Relower | None = None,
    providers: Providers | None = None,
    trusted: bool = False,
    reserve: Reserve | None = None,
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
        reserve: See `Executable.build`.

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
            reserve=reserve,
        )
    except ModelError as error:
        raise PackageDamagedError(plan.path, f"its model cannot be run: {error}") from error


def threads_here(package: Package | PackagedPlan) -> int:
    """Return as many threads as a package was measured with, but no more than this process has CPUs.

    More are only slower, and a package that names thousands would have every kernel start them.
    """
    return min(package.manifest.threads, usable_cpus())
