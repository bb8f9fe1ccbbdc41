"""From a package on disk to a session, without anything that searches or measures."""

from __future__ import annotations

import os

from collage_core.contract import Artifact, Kernel, RunContext, Target, Unsupported
from collage_core.errors import ModelError, PackageDamagedError, PluginError, UsageError
from collage_core.registry import Registry, Toolchain, load_toolchain
from collage_core.runtime.executable import Executable
from collage_core.runtime.loading import Load, Relower
from collage_core.runtime.package import MOST_THREADS, Package, load_package
from collage_core.runtime.session import Session


def load(
    package: str | os.PathLike[str] | Package,
    *,
    threads: int | None = None,
    registry: Registry | None = None,
    relower: Relower | None = None,
) -> Session:
    """Make a package runnable in this process.

    Args:
        package: A `.collage` file, or one already open.
        threads: CPU threads of each kernel, up to `MOST_THREADS`; None for as many as it was measured with.
        registry: Where toolchains come from; None to import those the package needs and no others.
        relower: Lowers a call site again when its artifact does not load on this machine; None to fail then.

    Raises:
        UsageError: If that is no number of threads.
        PackageError: If the file is no sound package.
        KernelLoadError: If a toolchain is missing or refuses; it says which and why.
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
        )
    except ModelError as error:
        raise PackageDamagedError(opened.path, f"its model cannot be run: {error}") from error
    return Session(executable)


def loader(registry: Registry | None) -> Load:
    """The `load` of whichever toolchain a target belongs to.

    Args:
        registry: Where toolchains come from; None to import each when it is first needed.
    """
    known: dict[str, Toolchain] = {}

    def load_artifact(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        name = target.toolchain
        if name not in known:
            if registry is None:
                try:
                    known[name] = load_toolchain(name)
                except PluginError as error:
                    return Unsupported(f"toolchain {name!r} is not usable: {error.reason}")
            elif name in registry.toolchains:
                known[name] = registry.toolchains[name]
            else:
                failed = [failure.reason for failure in registry.failures if failure.name == name]
                return Unsupported(f"toolchain {name!r} is not installed{f': {failed[0]}' if failed else ''}")
        return known[name].load(target, artifact, run)

    return load_artifact
