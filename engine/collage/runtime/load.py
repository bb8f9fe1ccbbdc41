"""Make a session from a package on disk, without importing any search or measurement code."""

from __future__ import annotations

import os

import onnx_ir as ir

from collage.devices.providers import Providers
from collage.devices.this_host import usable_cpus
from collage.errors import PackageDamagedError
from collage.runtime.executable import Executable
from collage.runtime.kernels.admission import PackageAdmission
from collage.runtime.kernels.loading import Load, Relower
from collage.runtime.package import MOST_THREADS, Package, TrustedPackages, load_package
from collage.runtime.session import Session
from collage_core.contract import Artifact, Kernel, RunContext, Target, Unsupported
from collage_core.errors import ModelError, PluginError, UsageError
from collage_core.registry import Registry, Toolchain, load_toolchain


def load(
    package: str | os.PathLike[str] | Package,
    *,
    threads: int | None = None,
    registry: Registry | None = None,
    relower: Relower | None = None,
    providers: Providers | None = None,
    trusted: bool = False,
) -> Session:
    """Make a package runnable in this process.

    Code in it is loaded only if it was written on this machine or accepted (`collage trust`).

    Args:
        package: A `.collage` file, or one already open.
        threads: CPU threads of each kernel, up to `MOST_THREADS`; None for `threads_here`.
        registry: Where toolchains come from; None to import those the package needs and no others.
        relower: Lowers a call site again when its artifact does not load on this machine; None to fail then.
        providers: Who provides devices; those installed if None.
        trusted: Whether the caller vouches for the package, having just written it.

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
    return Session(
        executable_of(
            opened,
            opened.model,
            threads=threads_here(opened) if threads is None else threads,
            registry=registry,
            relower=relower,
            providers=providers,
            trusted=trusted,
        )
    )


def executable_of(
    package: Package,
    model: ir.Model,
    *,
    threads: int,
    registry: Registry | None = None,
    relower: Relower | None = None,
    providers: Providers | None = None,
    trusted: bool = False,
) -> Executable:
    """Load the kernels of a package, the only way to: it decides what of the package may be loaded.

    Args:
        package: The package.
        model: Its model, or a copy with more outputs.
        threads: CPU threads of each kernel.
        registry: See `load`.
        relower: See `load`.
        providers: See `load`.
        trusted: See `load`.

    Raises:
        PackageError: See `load`, which says what else is raised.
    """
    toolchains = _Toolchains(registry)
    trusted = trusted or package.digest in TrustedPackages()
    try:
        return Executable.build(
            model,
            package.artifacts,
            package.targets,
            toolchains.load,
            threads=threads,
            relower=relower,
            weights=package.weights,
            providers=providers,
            admission=PackageAdmission(toolchains, package.path, trusted=trusted),
        )
    except ModelError as error:
        raise PackageDamagedError(package.path, f"its model cannot be run: {error}") from error


def threads_here(package: Package) -> int:
    """Return as many threads as a package was measured with, but no more than this process has CPUs.

    More are only slower, and a package that names thousands would have every kernel start them.
    """
    return min(package.manifest.threads, usable_cpus())


def loader(registry: Registry | None) -> Load:
    """Return a loader of artifacts that this process has built; those of packages are for `executable_of`.

    Args:
        registry: Source of toolchains; None to import each when it is first needed.
    """
    return _Toolchains(registry).load


class _Toolchains:
    """Toolchains by name, or the reason why one is missing."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._known: dict[str, Toolchain] = {}

    def __call__(self, name: str) -> Toolchain | Unsupported:
        if name in self._known:
            return self._known[name]
        if self._registry is None:
            try:
                self._known[name] = load_toolchain(name)
            except PluginError as error:
                return Unsupported(f"toolchain {name!r} is not usable: {error.reason}")
        elif name in self._registry.toolchains:
            self._known[name] = self._registry.toolchains[name]
        else:
            failed = [failure.reason for failure in self._registry.failures if failure.name == name]
            return Unsupported(f"toolchain {name!r} is not installed{f': {failed[0]}' if failed else ''}")
        return self._known[name]

    def load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Call the `load` of the toolchain that a target belongs to."""
        toolchain = self(target.toolchain)
        return toolchain if isinstance(toolchain, Unsupported) else toolchain.load(target, artifact, run)
