"""`load`: make a package ready to run, lowering artifacts again where they do not fit this machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable

from collage.errors import FewerThreadsWarning, LoweredAgainWarning
from collage.runtime import LoweredAgain
from collage.runtime.load import load as load_as_is
from collage.runtime.load import threads_here
from collage.runtime.package import Package, load_package
from collage.runtime.session import Session
from collage_core.contract import Artifact
from collage_core.passes.call_sites import CallSite

_CALLER = 3
"""Stack frames between the warning and the caller of `collage.load`."""


def load(
    package: str | os.PathLike[str], *, threads: int | None = None, tell: Callable[[str], None] | None = None
) -> Session:
    """Load a package for this machine.

    An artifact whose requirements do not hold here, because a library was upgraded or the processor lacks an
    instruction set, is lowered again from the packaged function in the toolchain's worker. That takes as long as a
    build, and the new kernel is unmeasured. So is an artifact that is code, of a package that was neither written on
    this machine nor accepted with `collage trust`.

    Args:
        package: A `.collage` file.
        threads: CPU threads of each kernel; the number it was measured with if None, or of CPUs if there are fewer.
        tell: Receives a message for each group of kernels that were lowered again, with the reason, and for fewer
            threads; warnings are issued if None.

    Raises:
        UsageError: If the number of threads is invalid.
        PackageError: If the file is not a valid package.
        KernelLoadError: If a toolchain is missing or refuses; it says which and why.
    """
    opened = load_package(package)
    wanted = threads_here(opened) if threads is None else threads
    session = load_as_is(opened, threads=wanted, relower=lambda site: _lower_again(opened, site, wanted))
    said: list[tuple[str, type[Warning]]] = [
        (message, LoweredAgainWarning) for message in lowered_again_messages(session.lowered_again)
    ]
    if threads is None and wanted < opened.manifest.threads:
        measured = opened.manifest.threads
        said.append(
            (f"it was measured with {measured} threads and runs with {wanted}, one for each CPU", FewerThreadsWarning)
        )
    for message, kind in said:
        if tell is None:
            warnings.warn(f"{opened.path}: {message}", kind, stacklevel=_CALLER)
        else:
            tell(message)
    return session


def lowered_again_messages(kernels: Iterable[LoweredAgain]) -> tuple[str, ...]:
    """Return one message per target and reason for the kernels that were lowered again."""
    groups: dict[tuple[str, str], list[str]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.target, kernel.reason), []).append(kernel.site)
    return tuple(
        f"{', '.join(sites)} of {target} {'was' if len(sites) == 1 else 'were'} not loaded ({reason}) but lowered "
        "again from the package, neither measured nor verified here; "
        "optimize the model again for a plan that is"
        for (target, reason), sites in groups.items()
    )


def _lower_again(package: Package, site: CallSite, threads: int) -> Artifact:
    # imported when needed: a process that only runs a package starts no workers and needs none of their code
    from collage.build.relower import lower_again

    return lower_again(package, site, threads)
