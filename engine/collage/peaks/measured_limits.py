"""What this machine allows a plan, by peaks from the tuning database or measured now; a failure costs these figures."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Collection, Sequence

from collage.peaks.limits import PlanLimits, PlanWork, limits_of
from collage.peaks.machine_peaks import ARITHMETIC, MachinePeaks, Run, asking, document_name, known_peaks, run_numpy
from collage.peaks.products import fastest_product
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Target
from collage_core.contract.device import HOST
from collage_core.errors import CollageError, DeadlineExceededError
from collage_core.plugin_calls import time_limit

_REPETITIONS = 2
"""How often peaks are measured again because a kernel is faster than they allow.

The machine may have been busy when they were measured. Or the kernel needs fewer operations than counted, which more
measurements do not change.
"""

_LEAST_S = 0.1
_WORK = "measuring what the machine allows"


def measured_limits(
    plan: Plan,
    times_us: Sequence[float],
    toolchains: Toolchains,
    choices: SetupChoices,
    targets: Collection[Target],
    run: Run = run_numpy,
    left_s: float = math.inf,
) -> PlanLimits | None:
    """Return what the machine allows a plan, as far as that is known in time; None for one without kernels.

    Args:
        plan: The plan.
        times_us: Time of each of its kernels, in execution order.
        toolchains: Those at work.
        choices: How candidates are measured.
        targets: Those whose products of large matrices are measured, beside NumPy's.
        run: Measures NumPy and memory in another process.
        left_s: Seconds that measuring may take.
    """
    if not plan.kernels:
        return None
    work = PlanWork.of(plan)
    if HOST not in work.devices:
        return limits_of(work, MachinePeaks(), toolchains.threads)
    try:
        with contextlib.nullcontext() if math.isinf(left_s) else time_limit(max(left_s, _LEAST_S), _WORK):
            peaks, missing = _peaks(work, toolchains, choices, targets, run)
            limits = limits_of(work, peaks, toolchains.threads, missing)
            timed = zip(limits.kernels, times_us, strict=True)
            faster = {limit.bound_by for limit, time_us in timed if limit.least_us > time_us}
            doubted = [each for each in sorted(faster) if peaks.repeated.count(each) < _REPETITIONS]
            if doubted:
                peaks, missing = _peaks(work, toolchains, choices, targets, run, again=doubted)
                limits = limits_of(work, peaks, toolchains.threads, missing)
    except DeadlineExceededError as error:
        if error.what != _WORK:
            raise
        name = document_name(toolchains.host, toolchains.threads)
        known = toolchains.database.get_document(MachinePeaks, name) or MachinePeaks()
        return limits_of(work, known, toolchains.threads, "the budget ended while the machine's peaks were measured")
    return limits


def _peaks(
    work: PlanWork,
    toolchains: Toolchains,
    choices: SetupChoices,
    targets: Collection[Target],
    run: Run,
    *,
    again: Sequence[str] = (),
) -> tuple[MachinePeaks, str]:
    """Return the peaks of the machine, as `known_peaks` does, by NumPy and by toolchains."""
    database, host, threads = toolchains.database, toolchains.host, toolchains.threads
    known, missing = known_peaks(database, host, threads, work.arithmetics, run, again=again)
    peaks, products_again = known, ARITHMETIC in again
    for arithmetic in sorted(work.arithmetics):
        on_host = [target for target in targets if target.device == HOST]
        new = [target for target in on_host if products_again or asking(arithmetic, target) not in peaks.asked]
        try:
            found = fastest_product(arithmetic, toolchains, choices, new, again=products_again)
        except CollageError as error:
            missing = missing or f"toolchains could not be asked for a product in {arithmetic}: {error}"
            continue
        peaks = peaks if found is None else peaks.with_product(found)
        peaks = dataclasses.replace(peaks, asked=peaks.asked | {asking(arithmetic, each) for each in new})
    peaks = dataclasses.replace(peaks, repeated=(*peaks.repeated, *again))
    if peaks != known:
        database.put_document(document_name(host, threads), peaks)
    return peaks, missing


def working_targets(pool: CandidatePool) -> tuple[Target, ...]:
    """Return the targets that some candidate was measured on: one that always crashes or hangs is not among them."""
    found: dict[str, Target] = {}
    for candidate in pool:
        if pool.cost_us(candidate) is not None:
            found.setdefault(candidate.target.name, candidate.target)
    return tuple(found[name] for name in sorted(found))
