"""`load`: make a package ready to run, with substitutes for kernels that do not load on this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from collage.errors import OtherThreadsWarning, SubstituteWarning, VerificationError
from collage.runtime import KernelReport, Lowered, Relower, SessionReport
from collage.runtime.load import load as load_as_is
from collage.runtime.package import Package, PackagedPlan, load_package
from collage.runtime.package.plan import described
from collage.runtime.packaged_kernels import threads_here
from collage.runtime.session import Session
from collage.runtime.shapes.shaped_session import ShapedSession
from collage_core.contract import Target, Unsupported
from collage_core.passes.call_sites import CallSite

if TYPE_CHECKING:
    from collage.build.lowering_workers import LoweringWorkers
    from collage.build.packaged_facts import PackagedFacts
    from collage.build.relower import Relowering
    from collage.setup.inputs.random_arrays import Given

_CALLER = 3
"""Stack frames between the warning and the caller of `collage.load`."""
_SHOWN = 6
"""Kernels that a message names."""
_ADVICE = (
    "whether its numbers are right so is not known. Check them with `collage run --verify` or load(verify=True); "
    "optimize the model with as many threads for the best plan"
)


def load(
    package: str | os.PathLike[str],
    *,
    threads: int | None = None,
    verify: bool | Given = False,
    strict: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Session:
    """Load a package for this machine.

    A kernel may not load: its toolchain is not installed, its library was upgraded, the processor lacks an instruction
    set, or it is code of a package that was neither written on this machine nor accepted with `collage trust`. Its
    packaged function is lowered again then, in a worker: for its own target if that is possible, or else for another
    toolchain's, ONNX's evaluator as the last resort. That takes as long as a build, and the new kernel is unmeasured.
    `Session.report` says which these are.

    Args:
        package: A `.collage` file.
        threads: CPU threads of each kernel; the number it was measured with if None, or of CPUs if there are fewer.
        verify: Whether to run it a few times and compare its outputs with the reference's: with other threads than it
            was made with, or with substitutes, its numbers are not known to be right. Values of its inputs, or the NPZ
            file that holds them, if random ones make no sense.
        strict: Whether to refuse a package of which a kernel does not load, and inputs of sizes outside the ranges that
            its plans are for.
        tell: Receives one message about all substitutes, with what they cost and how to get the packaged kernels back,
            and one for other threads than it was verified with; warnings are issued if None.

    Raises:
        UsageError: If the number of threads is invalid.
        PackageError: If the file is not a valid package.
        KernelLoadError: If a kernel does not load, and neither does a substitute; it has the reasons.
        FeedError: If the values to verify on do not fit.
        VerificationError: If it was verified and is wrong.
    """
    opened = load_package(package)
    wanted = threads_here(opened) if threads is None else threads
    said: list[tuple[str, type[Warning]]] = []
    with contextlib.closing(_LateRelowering(wanted)) as late:
        session = load_as_is(opened, threads=wanted, relowering=None if strict else late.of, strict=strict)
    if verify is not False:
        try:
            _verify(session, opened, wanted, None if verify is True else verify)
        except VerificationError as error:
            if late.started:
                raise VerificationError(f"{error} Not all kernels are as packaged: {late.message(session)}") from error
            raise
    if late.started:
        said.append((late.message(session), SubstituteWarning))
    if not session.verified and wanted != (measured := opened.manifest.threads):
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


class _LateRelowering:
    """Lowers call sites again; what that takes is imported and started when the first is asked for.

    A process that only runs a package starts no workers and needs none of their code.

    Attributes:
        started: What lowered some, by the shapes that its plan is for.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers: LoweringWorkers | None = None
        self.started: dict[str, Relowering] = {}

    def of(self, plan: PackagedPlan) -> Relower:
        """Return what lowers call sites of a plan again."""
        shapes = described(plan.input_shapes) if len(plan.package.plans) > 1 else ""

        def relower(site: CallSite, target: Target) -> Iterator[Lowered | Unsupported]:
            if shapes not in self.started:
                self.started[shapes] = self._started(plan)
            return self.started[shapes](site, target)

        return relower

    def _started(self, plan: PackagedPlan) -> Relowering:
        from collage.build.lowering_workers import LoweringWorkers
        from collage.build.relower import Relowering
        from collage_core.registry import Registry

        if self._workers is None:
            self._workers = LoweringWorkers(Registry.discover().toolchains)
        return Relowering(plan, self._threads, self._workers)

    def message(self, session: Session) -> str:
        """Return what the user should know about the substitutes of a session."""
        installed = () if self._workers is None else self._workers.installed
        return substitute_message(
            session.report(), {name: each.facts for name, each in self.started.items()}, installed
        )

    def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()


def substitute_message(report: SessionReport, facts: Mapping[str, PackagedFacts], installed: Collection[str]) -> str:
    """Return what the user should know about the substitutes in a session: which, why, their cost, and what to do.

    Args:
        report: The session's report, with at least one substitute.
        facts: What the plans say of their kernels, by the shapes that each is for.
        installed: Names of the installed toolchains.
    """
    groups: dict[tuple[str, str, str], list[KernelReport]] = {}
    for kernel in report.substitutes:
        groups.setdefault((kernel.packaged, kernel.target, kernel.reason), []).append(kernel)
    unknown = "not measured" if report.verified else "neither measured nor verified"
    said = []
    for (packaged, target, reason), kernels in groups.items():
        one = len(kernels) == 1
        which = f"{_listed(kernels)} of {packaged} {'was' if one else 'were'} not loaded ({reason})"
        if target == packaged:
            said.append(f"{which} but lowered again from the package, {unknown} here")
        else:
            cost = _cost(packaged, target, [(facts[each.input_shapes], each.site) for each in kernels])
            said.append(f"{which}; {target} runs {'it' if one else 'them'} instead, {unknown} here{cost}")
    advice = "optimize the model again for the best plan of this machine"
    missing = dict.fromkeys(
        name
        for each in report.substitutes
        for name in facts[each.input_shapes].missing_distributions(each.site, installed)
    )
    if missing:
        advice = f"`pip install {shlex.join(missing)}` brings packaged kernels back, or {advice}"
    return "; ".join([*said, advice])


def _listed(kernels: Sequence[KernelReport]) -> str:
    """Return the names of kernels, of the first few if there are many."""
    names = [kernel.name for kernel in kernels[:_SHOWN]]
    more = len(kernels) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _cost(packaged: str, target: str, kernels: Sequence[tuple[PackagedFacts, str]]) -> str:
    """Return what kernels cost on both targets where the package was made, or else the whole model; empty if unknown.

    Args:
        packaged: The target in the package.
        target: The target that runs them now.
        kernels: The facts of each kernel's plan, and its call site.
    """
    costs_us = [facts.costs_us(site) for facts, site in kernels]
    if all({packaged, target} <= set(each) for each in costs_us):
        before, now = (sum(each[name] for each in costs_us) / 1e3 for name in (packaged, target))
        return f", {now:.3g} ms instead of {before:.3g} ms where the package was made"
    plans = list(dict.fromkeys(facts for facts, _ in kernels))
    whole = [known for facts in plans if (known := facts.whole_ms(target)) is not None]
    if len(whole) < len(plans):
        return ""
    alone, plan = (sum(each) for each in zip(*whole, strict=True))
    which = "the plan" if len(plans) == 1 else "the plans"
    return f" ({target} alone took {alone:.3g} ms, {which} {plan:.3g} ms where the package was made)"


def _verify(session: Session, package: Package, threads: int, inputs: Given | None) -> None:
    # imported when needed, as above
    from collage.commands.verify_session import verify_session
    from collage.setup.inputs import given_values

    if not isinstance(session, ShapedSession):
        verify_session(session, package.plan, threads, inputs)
        return
    # values have one shape, and say nothing of other plans
    chosen = session.sessions if inputs is None else (session.session_for(given_values(inputs)),)
    for plan, each in zip(package.plans, session.sessions, strict=True):
        if each in chosen:
            verify_session(each, plan, threads, inputs)
