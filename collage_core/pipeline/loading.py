"""`load`: a package ready to run, lowered again where an artifact does not fit this machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from collage_core.contract import Artifact, Host
from collage_core.errors import KernelLoadError
from collage_core.measure.blobs import BlobStore
from collage_core.measure.client import PluginSource, Worker, artifact_of
from collage_core.measure.function_codec import FunctionEncoder
from collage_core.measure.messages import AskBuild
from collage_core.measure.outcomes import BuildSettings, Built, Tolerance
from collage_core.passes.call_sites import CallSite
from collage_core.runtime import Package, Session, load_package
from collage_core.runtime import load as load_as_is

_DEADLINE_S = 600.0


def load(package: str | os.PathLike[str], *, threads: int | None = None) -> Session:
    """Loads a package for this machine.

    An artifact whose requirements do not hold here, because a library was upgraded or the processor lacks an
    instruction set, is lowered again from the packaged function, in the toolchain's worker; that takes as long as a
    build, and is unmeasured.

    Args:
        package: A `.collage` file.
        threads: CPU threads of each kernel; as many as it was measured with if None.

    Raises:
        PackageError: If the file is no sound package.
        KernelLoadError: If a toolchain is missing or refuses; it says which and why.
    """
    opened = load_package(package)
    wanted = threads or opened.manifest.threads
    return load_as_is(opened, threads=wanted, relower=lambda site: _lower_again(opened, site, wanted))


def _lower_again(package: Package, site: CallSite, threads: int) -> Artifact:
    target = package.targets[site.name]
    with contextlib.ExitStack() as stack:
        store = BlobStore(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="collage-"))))
        worker = Worker(PluginSource(toolchain=site.toolchain), store)
        stack.callback(worker.close)
        here = worker.targets(Host.this())
        same = [t for t in here if t.name == target.name] if isinstance(here, tuple) else []
        if not same:
            raise KernelLoadError(site.name, target.name, site.nodes, "its toolchain does not offer that target here")
        built = worker.build(
            AskBuild(
                target=same[0],
                function=FunctionEncoder(store).encode(site.kernel_function()),
                variant=None,
                inputs=(),
                expected=(),
                build=BuildSettings(threads=threads),
                tolerance=Tolerance(),
                deadline_s=_DEADLINE_S,
            )
        )
        if not isinstance(built, Built):
            raise KernelLoadError(site.name, target.name, site.nodes, built.reason)
        return artifact_of(built.artifact, store)
