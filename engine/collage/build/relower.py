"""Lower a call site of a package again, in its toolchain's worker."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from collage.devices.this_host import this_host
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.wire.artifact_codec import artifact_of
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild
from collage.measure.wire.outcomes import BuildSettings, Built, Tolerance
from collage.runtime.package import Package
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Artifact
from collage_core.errors import KernelLoadError
from collage_core.passes.call_sites import CallSite

_DEADLINE_S = 600.0


def lower_again(package: Package, site: CallSite, threads: int) -> Artifact:
    """Lower a call site for this machine from the packaged function.

    Args:
        package: Package that holds the call site.
        site: Call site to lower.
        threads: CPU threads of the kernel.

    Raises:
        KernelLoadError: If its toolchain does not offer its target here, or refuses.
    """
    target = package.targets[site.name]
    with contextlib.ExitStack() as stack:
        store = BlobStore(stack.enter_context(TemporaryFolder()))
        worker = Worker(PluginSource(toolchain=site.toolchain), store)
        stack.callback(worker.close)
        here = worker.targets(this_host())
        wanted = (target.device, target.options)
        same = [t for t in here if (t.device, t.options) == wanted] if isinstance(here, tuple) else []
        if not same:
            raise KernelLoadError(site.name, target.name, site.nodes, "its toolchain does not offer that target here")
        built = worker.build(
            AskBuild(
                target=same[0],
                function=FunctionEncoder(store).encode(site.kernel_function()),
                variant=None,
                inputs=(),
                expected=(),
                build=BuildSettings(threads=threads, deterministic=_is_deterministic(package)),
                tolerance=Tolerance(),
                deadline_s=_DEADLINE_S,
            )
        )
        if not isinstance(built, Built):
            raise KernelLoadError(site.name, target.name, site.nodes, built.reason)
        return artifact_of(built.artifact, store)


def _is_deterministic(package: Package) -> bool:
    """Return whether the package was made with `--deterministic`."""
    record = package.record
    return isinstance(record, Mapping) and record.get("deterministic") is True
