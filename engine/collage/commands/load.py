"""`load`: make a package ready to run, lowering artifacts again where they do not fit this machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from collage.errors import LoweredAgainWarning, OtherThreadsWarning
from collage.runtime import LoweredAgain
from collage.runtime.load import load as load_as_is
from collage.runtime.load import threads_here
from collage.runtime.package import Package, load_package
from collage.runtime.session import Session
from collage_core.contract import Artifact
from collage_core.passes.call_sites import CallSite

if TYPE_CHECKING:
    from collage.setup.inputs.random_arrays import Given

_CALLER = 3
"""Stack frames between the warning and the caller of `collage.load`."""
_ADVICE = (
    "whether its numbers are right so is not known. Check them with `collage run --verify` or load(verify=True); "
    "optimize the model with as many threads for the best plan"
)


def load(
    package: str | os.PathLike[str],
    *,
    threads: int | None = None,
    verify: bool | Given = False,
    tell: Callable[[str], None] | None = None,
) -> Session:
    """Load a package for this machine.

    An artifact whose requirements do not hold here, because a library was upgraded or the processor lacks an
    instruction set, is lowered again from the packaged function in the toolchain's worker. That takes as long as a
    build, and the new kernel is unmeasured. So is an artifact that is code, of a package that was neither written on
    this machine nor accepted with `collage trust`.

    Args:
        package: A `.collage` file.
        threads: CPU threads of each kernel; the number it was measured with if None, or of CPUs if there are fewer.
        verify: Whether to run it a few times and compare its outputs with the reference's: with other threads than it
            was made with, or lowered again, its numbers are not known to be right. Values of its inputs, or the NPZ
            file that holds them, if random ones make no sense.
        tell: Receives a message for each group of kernels that were lowered again, with the reason, and for other
            threads than it was verified with; warnings are issued if None.

    Raises:
        UsageError: If the number of threads is invalid.
        PackageError: If the file is not a valid package.
        KernelLoadError: If a toolchain is missing or refuses; it says which and why.
        FeedError: If the values to verify on do not fit.
        VerificationError: If it was verified and is wrong.
    """
    opened = load_package(package)
    wanted = threads_here(opened) if threads is None else threads
    session = load_as_is(opened, threads=wanted, relower=lambda site: _lower_again(opened, site, wanted))
    if verify is not False:
        _verify(session, opened, wanted, None if verify is True else verify)
    verified = verify is not False
    said: list[tuple[str, type[Warning]]] = [
        (message, LoweredAgainWarning) for message in lowered_again_messages(session.lowered_again, verified=verified)
    ]
    if not verified and wanted != (measured := opened.manifest.threads):
        why = ", one for each CPU" if threads is None else ""
        said.append(
            (
                f"it was measured and verified with {measured} threads and runs with {wanted}{why}: {_ADVICE}",
                OtherThreadsWarning,
            )
        )
    for message, kind in said:
        if tell is None:
            warnings.warn(f"{opened.path}: {message}", kind, stacklevel=_CALLER)
        else:
            tell(message)
    return session


def lowered_again_messages(kernels: Iterable[LoweredAgain], *, verified: bool = False) -> tuple[str, ...]:
    """Return one message per target and reason for the kernels that were lowered again.

    Args:
        kernels: Those that were lowered again.
        verified: Whether what they compute was compared with the reference since.
    """
    unknown = "not measured" if verified else "neither measured nor verified"
    groups: dict[tuple[str, str], list[str]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.target, kernel.reason), []).append(kernel.site)
    return tuple(
        f"{', '.join(sites)} of {target} {'was' if len(sites) == 1 else 'were'} not loaded ({reason}) but lowered "
        f"again from the package, {unknown} here; "
        "optimize the model again for a plan that is"
        for (target, reason), sites in groups.items()
    )


def _lower_again(package: Package, site: CallSite, threads: int) -> Artifact:
    # imported when needed: a process that only runs a package starts no workers and needs none of their code
    from collage.build.relower import lower_again

    return lower_again(package, site, threads)


def _verify(session: Session, package: Package, threads: int, inputs: Given | None) -> None:
    # imported when needed, as above
    from collage.commands.verify_session import verify_session

    verify_session(session, package, threads, inputs)
