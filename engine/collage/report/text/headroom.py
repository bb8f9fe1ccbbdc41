"""How much better a plan could be: among the candidates, and on this machine by estimate."""

from __future__ import annotations

import math

from collage.report import figures
from collage.report.facts.machine_facts import LimitFacts
from collage.report.facts.record import Record

_SAYS_LITTLE = 0.5
"""Headroom among the candidates above which it only says that most of them were not measured."""


def headroom_lines(record: Record) -> tuple[str, ...]:
    """Return how much better a plan could be, by the candidates and by the machine, a line each."""
    return (f"headroom among the candidates: {_candidates(record)}", f"headroom on this machine: {_machine(record)}")


def _candidates(record: Record) -> str:
    search, headroom = record.search, record.headroom
    if search.method == "beam":
        lacking = "the exact search ended at its limit of states"
    else:
        candidates = figures.counted(search.distinct_candidates, "candidate")
        lacking = f"{search.unmeasured} of {candidates} have no measurement"
    if not search.took_place:
        return "not known: the plan was given, nothing else was measured"
    if record.comparison.contenders and not record.comparison.contenders[0].exact:
        return "not known: kernels of lower precision are chosen under a bound on the error, not by cost alone"
    if search.exact:
        best = "none; no cheaper plan exists among them, at these costs (exact)"
        if headroom is None or headroom * record.predicted_ms < 1e-6:
            return best
        return (
            f"{figures.percent(headroom, 1)} of the predicted time, to the cheapest plan of them by these costs "
            "(exact); times end to end decided"
        )
    if headroom is None or not math.isfinite(search.gap_us):
        return f"not known: {lacking}{_advice(record)}"
    if headroom > _SAYS_LITTLE:
        return f"not known: {lacking}, so next to nothing is ruled out{_advice(record)}"
    saved_us = headroom * record.predicted_ms * 1000
    return (
        f"at most {figures.percent(headroom, 1)} ({figures.microseconds(saved_us)} us) of the predicted time: "
        f"{lacking}{_advice(record)}"
    )


def _advice(record: Record) -> str:
    return "" if record.search.method in ("exact", "beam", "ilp") else "; `--search exact` measures more of them"


def _machine(record: Record) -> str:
    limit, share = record.limit, record.share_of_peak
    if limit is None or limit.not_estimated or share is None:
        return f"not estimated: {why_not_estimated(record, limit)}"
    time = f"{figures.milliseconds(record.measured_ms or record.predicted_ms)} ms"
    least = f"at least {figures.milliseconds(limit.least_us / 1000)} ms for {work(limit)}"
    if share > 1:
        return (
            f"not known; this plan runs at {figures.whole_percent(share)} of {peak_name(limit)} ({time}, where the "
            f"estimate is {least}): {ABOVE}"
        )
    return (
        f"{figures.whole_percent(1 - share)} by estimate; this plan runs at {figures.whole_percent(share)} of "
        f"{peak_name(limit)} ({time}; {least})"
    )


ABOVE = (
    "above 100 % it needs fewer operations than counted, as Winograd's convolution does, or moves bytes faster than "
    "was measured"
)
"""What a share above the machine's peak means."""


def peak_name(limit: LimitFacts) -> str:
    """Return which peak bounds a kernel or a model."""
    if limit.bound_by == "memory":
        return f"the machine's {limit.level} bandwidth"
    return f"the machine's peak in {' and '.join(sorted(limit.gflop))}"


def work(limit: LimitFacts) -> str:
    """Return the work of a kernel or a model in words."""
    gflop = ", ".join(f"{figures.operations(count)} in {name}" for name, count in sorted(limit.gflop.items()))
    uncounted = f"; {', '.join(limit.uncounted)} not counted" if limit.uncounted else ""
    return f"{gflop or 'no arithmetic'} and {figures.size(limit.size_bytes)}{uncounted}"


def why_not_estimated(record: Record, limit: LimitFacts | None) -> str:
    """Return why there is no estimate for a kernel or a model."""
    reason = limit.not_estimated if limit is not None else ""
    missing = record.machine.missing if record.machine is not None else ""
    nothing = "it was not looked at" if limit is None and record.regions else "nothing is to be computed"
    return "; ".join(filter(None, (reason, missing))) or nothing
