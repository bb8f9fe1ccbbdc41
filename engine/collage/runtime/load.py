"""Make a session from a package on disk, without importing any search or measurement code."""

from __future__ import annotations

import os

from collage.devices.providers import Providers
from collage.errors import PackageDamagedError
from collage.runtime.executable import Executable
from collage.runtime.kernels.loading import Load, Relower
from collage.runtime.package import MOST_THREADS, Package, load_package
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
) -> Session:
    """Make a package runnable in this process.

    Args:
        package: A `.collage` file, or one already open.
        threads: CPU threads of each kernel, up to `MOST_THREADS`; None for as many as it was measured with.
        registry: Where toolchains come from; None to import those the package needs and no others.
        relower: Lowers a call site again when its artifact does not load on this machine; None to fail then.
        providers: Who provides devices; those installed if None.

    Raises:
        UsageError: If that is no number of threads.
        PackageError: If the file is no sound package.
        KernelLoadError: If a toolchain or a device is missing or refuses; it says which and why.
        LibraryClashError: If toolchains of the plan load two of a library of which a process has room for one.
        DeviceError: If a device has not the memory the plan needs.
    """
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise UsageError(f"the number of threads is from 1 to {MOST_THREADS}, not {threads!r}")
    opened = package if isinstance(package, Package) else load_package(package)
    try:
        executable = Executable.build(
            opened.model,
            opened.artifacts,
            opened.targets,
            loader(registry),
            threads=opened.manifest.threads if threads is None else threads,
            relower=relower,
            weights=opened.weights,
            providers=providers,
        )
    except ModelError as error:
        raise PackageDamagedError(opened.path, f"its model cannot be run: {error}") from error
    return Session(executable)


def loader(registry: Registry | None) -> Load:
    """Return a loader that calls the `load` of the toolchain a target belongs to.

    Args:
        registry: Source of toolchains; None to import each when it is first needed.
    """
    toolchains = _Toolchains(registry)

    def load_artifact(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        toolchain = toolchains(target.toolchain)
        return toolchain if isinstance(toolchain, Unsupported) else toolchain.load(target, artifact, run)

    return load_artifact


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
