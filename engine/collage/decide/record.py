"""The record of an optimization: everything that was found out."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence

from collage.decide.compatible_sets import compatible_set_facts
from collage.decide.kept import Kept
from collage.decide.recording import comparison, device_copies, options_explained, regions
from collage.explore.exploration import Explored
from collage.options import OptimizeOptions
from collage.peaks.limits import PlanLimits
from collage.report.facts.precision_facts import MetricFacts, PrecisionFacts
from collage.report.facts.record import Record
from collage.report.facts.search_facts import SearchFacts
from collage.setup.environment import Environment
from collage.setup.facts import device_facts, host_facts, toolchain_facts
from collage.setup.workload import Workload
from collage_core.candidates.explanation import refusals
from collage_core.candidates.plan import Plan
from collage_core.fusion import CandidateKernel


def record_of(
    environment: Environment[Workload],
    options: OptimizeOptions,
    explored: Explored,
    plans: Sequence[Plan],
    kept: Kept,
    limits: PlanLimits | None,
    *,
    method: str,
    seconds: Mapping[str, float],
    alone_us: Mapping[str, float],
    notes: Sequence[str],
    precision: Mapping[CandidateKernel, PrecisionFacts],
    metric: MetricFacts | None,
    ranges: str,
    interval: Callable[[CandidateKernel, float], tuple[float, float] | None],
) -> Record:
    """Return the record.

    Args:
        environment: The model and the toolchains.
        options: What the user said.
        explored: What was measured and searched.
        plans: Those that were timed.
        kept: The one that is kept.
        limits: What the machine allows it; None if it has no kernels.
        method: How it was searched.
        seconds: How long each phase took.
        alone_us: What each plan was predicted to take before the race, by name.
        notes: What the user should know besides.
        precision: What lower precision of the plan's kernels does to the outputs.
        metric: What the plan reaches in the user's metric; None without one.
        ranges: How ranges of 8-bit integers were chosen; empty if that is not known.
        interval: As for `regions`.
    """
    workload, toolchains = environment.workload, environment.toolchains
    pool, plan, verified = explored.pool, kept.assembled.plan, kept.verified
    against = comparison(plans, kept.timings, kept.decision, environment.source.usual_calibration_us, alone_us)
    latency = against.contenders[0].latency_ms
    failures = (*environment.asked.failures, *explored.failures)
    unfresh = () if workload.has_fresh_inputs else ("verified on the given inputs: no others are known to fit",)
    return Record(
        collage_version=importlib.metadata.version("collage-core"),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=workload.facts,
        host=host_facts(toolchains.host),
        threads=toolchains.threads,
        seed=options.seed,
        preset=options.effective.name,
        max_error_allowed=options.error_allowed or 0.0,
        ranges=ranges
        if any(each.span is not None for kernel in plan.kernels for each in kernel.sub_graph.int8)
        else "",
        deterministic=options.deterministic,
        toolchains=toolchain_facts(toolchains.registry, toolchains.statuses, explored.proposals, plan),
        search=_search_facts(environment, explored, method, seconds),
        comparison=against,
        decision=kept.decision.reason,
        predicted_ms=plan.predicted_us / 1000,
        measured_ms=latency.p50 if latency is not None else None,
        max_error=verified.max_error,
        metric=metric,
        regions=regions(
            plan,
            pool,
            [proposals.rule.target for proposals in explored.proposals.values()],
            kept.assembled.errors,
            verified.measured_us,
            limits.kernels if limits is not None else (),
            precision,
            interval,
        ),
        refusals=refusals(explored.proposals.values(), failures, pool=pool),
        unchecked=verified.unchecked,
        nan=verified.nan,
        notes=(*workload.notes, *notes, *unfresh, *options_explained(plans)),
        device_copies=device_copies(plan),
        devices=device_facts(toolchains.device_figures),
        device_work=verified.work,
        machine=limits.machine if limits is not None else None,
        limit=limits.whole if limits is not None else None,
    )


def _search_facts(
    environment: Environment[Workload], explored: Explored, method: str, seconds: Mapping[str, float]
) -> SearchFacts:
    counts, pool, result = environment.source.counts, explored.pool, explored.result
    return SearchFacts(
        method=method,
        exact=result.exact,
        gap_us=result.gap_us,
        candidates=len(pool),
        distinct_candidates=pool.distinct(),
        measured=counts.measured,
        cache_hits=counts.cache_hits,
        left_out="; ".join(explored.left_out),
        rounds=explored.rounds,
        seconds=seconds,
        compatible_sets=compatible_set_facts(pool),
        bound_us=max(0.0, result.total_us - result.gap_us) or None,
        unmeasured=pool.unmeasured(),
        history=explored.history,
    )
