"""What a race and a plan came to, as the record keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from collage.decide.decision import Decision
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.timed import Timed
from collage.measure.statistics import Interval, median_interval, percentile
from collage.report.facts.machine_facts import LimitFacts
from collage.report.facts.precision_facts import PrecisionFacts
from collage.report.facts.record import (
    AlternativeFacts,
    AsCalledFacts,
    Comparison,
    ContenderFacts,
    CopyFacts,
    LatencyFacts,
    RegionFacts,
)
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Target
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.call_sites import site_name
from collage_core.search import SearchTarget

_US_PER_MS = 1000.0


def latency_facts(rounds_us: Sequence[Sequence[float]]) -> LatencyFacts:
    """Compute statistics over all samples of a contender."""
    samples = [sample / _US_PER_MS for each in rounds_us for sample in each]
    middle = median_interval(samples)
    return LatencyFacts(
        p50=middle.value,
        p90=percentile(samples, 90),
        p99=percentile(samples, 99),
        mean=sum(samples) / len(samples),
        min=min(samples),
        n=len(samples),
        ci95=(middle.low, middle.high),
    )


def as_called_facts(rounds_us: Sequence[Sequence[float]], ratio: Interval | None) -> AsCalledFacts:
    """Describe a contender's runs as users call them.

    Args:
        rounds_us: Their samples, by round.
        ratio: Ratio to the best single toolchain's; None if there is none.
    """
    latency_ms = latency_facts(rounds_us)
    if ratio is None:
        return AsCalledFacts(latency_ms=latency_ms)
    return AsCalledFacts(latency_ms=latency_ms, ratio=ratio.value, ratio_ci95=(ratio.low, ratio.high))


def comparison(
    plans: Sequence[Plan],
    timings: EndToEndTimings,
    decision: Decision,
    usual_calibration_us: float | None,
    alone_us: Mapping[str, float] | None = None,
) -> Comparison:
    """Build the record of the end-to-end comparison; the kept plan comes first, under the name `collage`.

    Args:
        plans: Those that were to be timed.
        timings: What came of it.
        decision: Which plan is kept.
        usual_calibration_us: What the calibration kernel usually takes on this machine; None if it never ran.
        alone_us: What each plan was predicted to take before the race, by name.
    """
    timed = {each.name: each for each in timings.timed}
    usual_ms = {each.name: each.usual_us(usual_calibration_us) / _US_PER_MS for each in timings.timed}
    first: dict[str, str] = {}  # of plans with the same kernels one was timed
    for plan in plans:
        first.setdefault(plan.key, plan.name)
    shown = [("collage", _plan(plans, decision.winner), decision.winner)]
    shown += [
        (plan.name, plan, same)
        for plan, same in ((plan, first[plan.key]) for plan in plans)
        if plan.single or plan.name == same != decision.winner
    ]
    contenders = tuple(
        dataclasses.replace(
            _contender(name, plan, same, timed, usual_ms, decision, timings.failed.get(same, "") if number else ""),
            alone_ms=(alone_us or {}).get(plan.name, plan.predicted_us) / _US_PER_MS,
        )
        for number, (name, plan, same) in enumerate(shown)
    )
    kept = decision.ratios.get(decision.winner)
    incumbent = _plan(plans, decision.incumbent)
    if kept is None or not incumbent.single:
        return Comparison(contenders=contenders)
    return Comparison(
        contenders=contenders,
        best_single=incumbent.name,
        speedup_vs_best_single=1 / kept.value,
        speedup_ci95=(1 / kept.high, 1 / kept.low),
        best_single_as_called=decision.incumbent_as_called or None,
    )


def _plan(plans: Sequence[Plan], name: str) -> Plan:
    return next(plan for plan in plans if plan.name == name)


def _contender(
    name: str,
    plan: Plan,
    timed_as: str,
    timed: Mapping[str, Timed],
    usual_ms: Mapping[str, float],
    decision: Decision,
    failed: str = "",
) -> ContenderFacts:
    samples, ratio = timed.get(timed_as), decision.ratios.get(timed_as)
    called = samples.called_us if samples is not None else ()
    return ContenderFacts(
        name=name,
        kind="single" if plan.single else "mixed",
        toolchains=plan.toolchains,
        regions=len(plan.kernels),
        latency_ms=latency_facts(samples.rounds_us) if samples is not None else None,
        failed=failed if samples is None else "",
        ratio=ratio.value if ratio is not None else None,
        ratio_ci95=(ratio.low, ratio.high) if ratio is not None else None,
        predicted_ms=plan.predicted_us / _US_PER_MS,
        usual_ms=usual_ms.get(timed_as) or None,
        as_called=as_called_facts(called, decision.called.get(timed_as)) if called else None,
        exact=all(kernel.target.exact for kernel in plan.kernels),
    )


def options_explained(plans: Sequence[Plan]) -> list[str]:
    """Return what the options of the plans' targets do, where their toolchains say it, a sentence each."""
    targets = {kernel.target.name: kernel.target.about for plan in plans for kernel in plan.kernels}
    return [f"{name}: {about}" for name, about in sorted(targets.items()) if about]


def regions(
    plan: Plan,
    pool: CandidatePool,
    targets: Sequence[Target],
    errors: Mapping[str, float],
    measured_us: Mapping[str, float],
    limits: Sequence[LimitFacts] = (),
    precision: Mapping[CandidateKernel, PrecisionFacts] | None = None,
    interval: Callable[[CandidateKernel, float], tuple[float, float] | None] = lambda kernel, cost_us: None,
) -> tuple[RegionFacts, ...]:
    """Describe the kernels of a plan, each with the alternatives on every other target.

    Args:
        plan: The plan.
        pool: The candidates.
        targets: Every target that takes part.
        errors: Largest error at the boundary of each kernel, by call site.
        measured_us: Time of each in place, by call site.
        limits: What the machine allows each kernel, in execution order; none if nothing is known of it.
        precision: What lower precision of kernels does to the outputs.
        interval: Returns an interval around the cost of a kernel; see `Repeats.interval`.
    """
    found = []
    costs, alone = plan.cost_of, pool.with_costs(pool.costs.alone())
    used = {kernel.target.name: kernel.target for kernel in plan.kernels}.values()
    for number, kernel in enumerate(plan.kernels):
        site = site_name(number)
        sub_graph = kernel.sub_graph
        found.append(
            RegionFacts(
                id=site,
                toolchain=kernel.target.toolchain,
                target=kernel.target.name,
                composite=sub_graph.label,
                nodes=sub_graph.names,
                operators=tuple(pool.graph.nodes[index].op_type for index in iterate_bits(sub_graph.nodes)),
                cost_us=costs[sub_graph.nodes],
                alone_us=alone.cost_us(kernel),
                cost_ci95_us=interval(kernel, costs[sub_graph.nodes]),
                measured_us=measured_us.get(site) or None,
                error=errors.get(site, 0.0),
                limit=limits[number] if limits else None,
                precision=(precision or {}).get(kernel),
                alternatives=tuple(
                    _alternative(alone, kernel, target, [each for each in used if each != kernel.target])
                    for target in targets
                    if target != kernel.target
                ),
            )
        )
    return tuple(found)


def device_copies(plan: Plan) -> tuple[CopyFacts, ...]:
    """Return the copies between devices that a plan makes."""
    return tuple(
        CopyFacts(
            value=copy.value,
            source=copy.source,
            destination=copy.destination,
            size_bytes=copy.size_bytes or 0,
            cost_us=copy.cost_us,
        )
        for copy in plan.copies
    )


def _alternative(
    pool: CandidatePool, kernel: CandidateKernel, target: Target, others: Sequence[Target]
) -> AlternativeFacts:
    """Return the cost of another target's best cover of a kernel's nodes, or why it has none.

    Args:
        pool: The candidates.
        kernel: A kernel of the plan.
        target: The other target.
        others: Targets that the plan uses elsewhere.
    """
    nodes = kernel.sub_graph.nodes
    if not target.mixable and nodes != pool.whole:
        return AlternativeFacts(target=target.name, cost_us=None, reason="it runs whole models only")
    try:
        result = pool.engine(within=nodes, target=target.name).run()
    except NoCoverError:
        reason, measured = _why_not(pool, nodes, target)
        return AlternativeFacts(target=target.name, cost_us=None, reason=reason, measured=measured)
    count = len(result.candidates)
    how = "as one kernel" if count == 1 else f"as {count} kernels"
    mine = SearchTarget.of(target)
    strangers = [each.name for each in others if target.mixable and not mine.mixes_with(SearchTarget.of(each))]
    if strangers:
        how += f"; it cannot share a plan with {' or '.join(strangers)}"
    return AlternativeFacts(target=target.name, cost_us=result.total_us, reason=how, excluded_by=tuple(strangers))


def _why_not(pool: CandidatePool, nodes: int, target: Target) -> tuple[str, bool]:
    """Return why a target has no cover of nodes, and whether that is known: False if it was not measured there."""
    for candidate in pool:
        same = candidate.target == target and candidate.sub_graph.nodes == nodes
        if same and (rejection := pool.rejection(candidate)):
            return rejection.reason, True
    tried = any(c.target == target and not c.sub_graph.nodes & ~nodes for c in pool)
    return ("not all of it was measured there", False) if tried else ("it does not take these nodes", True)
