"""`measure`: time one kernel of a model on several targets, by the protocol that searches go by."""

from __future__ import annotations

import functools
import os
import statistics
from collections.abc import Sequence

import onnx_ir

from collage.command_start import command_began
from collage.measure.budget import Budget
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.models.preparing import prepared_apart
from collage.measure.statistics import Interval, median_interval, ratio_interval
from collage.measure.wire.outcomes import Failed, Measured, Refused
from collage.options import OptimizeOptions
from collage.process_guard import plugins_guarded
from collage.report.facts.measure_facts import MeasuredTarget, MeasureReport
from collage.report.progress import Progress, SilentProgress
from collage.setup.environment import Environment
from collage.setup.facts import host_facts
from collage.setup.settings import SetupChoices, candidate_bounds
from collage.setup.workload import Workload
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.proposals import Proposals
from collage_core.errors import UsageError, did_you_mean
from collage_core.fusion import CandidateKernel, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.registry import Registry

ROUNDS = 5
_ADVICE = "What was measured is kept in the tuning database; give it more time with --budget, or fewer --rounds."


@plugins_guarded()
def measure(
    model: str | os.PathLike[str] | onnx_ir.Model,
    nodes: Sequence[str] = (),
    options: OptimizeOptions | None = None,
    *,
    rounds: int = ROUNDS,
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> MeasureReport:
    """Time a kernel on every target that takes it: in turns, each beside the calibration kernel, and checked.

    Args:
        model: An ONNX file, or a model in memory.
        nodes: Names of the kernel's nodes in the prepared model; all of the model if none.
        options: Which targets, shapes and inputs, how long to measure, and where results are kept.
        rounds: How often each target is measured.
        progress: Receives progress updates.
        registry: The toolchains; those installed if None.

    Raises:
        UsageError: If the nodes are not there, or cannot be one kernel; or there is no round.
        CollageError: If the model cannot be used.
    """
    if rounds < 1:
        raise UsageError(f"a kernel is measured in at least one round, not {rounds}")
    options, progress = options or OptimizeOptions(), progress or SilentProgress()
    budget = Budget.begin(options.budget_s, began=command_began())
    workload = functools.partial(
        Workload,
        model,
        input_shapes=options.input_shapes,
        inputs=options.inputs,
        seed=options.seed,
        prepare=functools.partial(prepared_apart, budget=budget),
    )
    opening = Environment.open(workload, SetupChoices.of(options, budget), registry=registry, progress=progress)
    try:
        with opening as environment:
            environment.toolchains.targets()
            graph = environment.graph
            kernel = _kernel(graph, nodes)
            proposed = propose_all(environment.asked.rules, graph, candidate_bounds(options))
            found = {name: _candidate(each, kernel) for name, each in proposed.by_target.items()}
            found |= {each.target.name: each.reason for each in (*environment.asked.failures, *proposed.failures)}
            with environment.budget.enforced("measuring the kernel", _ADVICE):
                targets = _measured(environment, found, rounds, options.seed, progress)
            return MeasureReport(
                model=environment.workload.facts,
                host=host_facts(environment.toolchains.host),
                threads=environment.toolchains.threads,
                nodes=kernel.names,
                operators=tuple(graph.nodes[index].op_type for index in iterate_bits(kernel.nodes)),
                rounds=rounds,
                targets=targets,
            )
    finally:
        progress.done()


def _kernel(graph: DataflowGraph, names: Sequence[str]) -> SubGraph:
    """Return the kernel of some nodes.

    Raises:
        UsageError: If one is not there, or they cannot be one kernel.
    """
    known = {name: index for index, name in enumerate(graph.names)}
    for name in names:
        if name not in known:
            raise UsageError(f"the prepared model has no node {name!r}{did_you_mean(name, known)}")
    mask = mask_of(known[name] for name in names) if names else graph.needs_kernel
    kernel = SubGraph(graph, graph.completed(mask)) if mask else None
    if kernel is None or not kernel.nodes & graph.needs_kernel:
        raise UsageError("none of these nodes needs a kernel: they are views, which cost nothing")
    if not kernel.is_convex:
        raise UsageError("these nodes cannot be one kernel: a value flows out of them and back in")
    return kernel


def _candidate(proposals: Proposals, kernel: SubGraph) -> CandidateKernel | str:
    """Return a target's candidate for a kernel, or why it has none."""
    graph, rule = proposals.graph, proposals.rule
    wanted = kernel.nodes & graph.needs_kernel
    for candidate in proposals.candidates:
        if candidate.sub_graph.nodes & graph.needs_kernel == wanted:
            return candidate
    for index in iterate_bits(wanted):
        if reason := proposals.refusals.get(index):
            return f"{graph.names[index]} ({graph.nodes[index].op_type}): {reason}"
    if wanted & ~proposals.covered:
        return "it does not take all of these nodes"
    if not rule.takes_any_region:
        return "it takes these nodes, but not as one kernel"
    return CandidateKernel(kernel, rule.spec, rule.target)


def _measured(
    environment: Environment[Workload],
    found: dict[str, CandidateKernel | str],
    rounds: int,
    seed: int,
    progress: Progress,
) -> tuple[MeasuredTarget, ...]:
    """Measure candidates in turns, as long as the budget lasts; each round begins with another."""
    source, budget = environment.source, environment.budget
    candidates = {name: each for name, each in found.items() if isinstance(each, CandidateKernel)}
    progress.phase("building and checking", len(candidates))
    usable: dict[str, CandidateKernel] = {}
    for name, candidate in candidates.items():
        source.measure([candidate])
        if isinstance(source.outcome(candidate), Measured):
            usable[name] = candidate
        progress.advance()
    progress.phase("measuring in turns", rounds * len(usable))
    names, samples = list(usable), {name: list[tuple[float, ...]]() for name in usable}
    for number in range(rounds):
        if budget.is_spent:
            progress.message(f"the budget was spent after {number} of {rounds} rounds")
            break
        for name in names[number % len(names) :] + names[: number % len(names)] if names else ():
            source.measure([usable[name]], "confirm")
            if isinstance(source.outcome(usable[name]), Measured):
                samples[name].append(source.last_medians_us(usable[name]))
            progress.advance()
    most = max(map(len, samples.values()), default=0)
    whole = {name: each for name, each in samples.items() if each and len(each) == most}
    medians = {name: [statistics.median(each) for each in taken] for name, taken in whole.items()}
    fastest = min(medians, key=lambda name: (statistics.median(medians[name]), name), default="")
    targets = [_timed(name, source, usable[name], whole[name], whole[fastest], seed) for name in medians]
    targets += [_untimed(name, source, each) for name, each in found.items() if name not in medians]
    return tuple(sorted(targets, key=lambda each: (each.cost_us is None, each.cost_us or 0.0, each.target)))


def _timed(
    name: str,
    source: MeasuringCostSource,
    candidate: CandidateKernel,
    ours: Sequence[Sequence[float]],
    fastest: Sequence[Sequence[float]],
    seed: int,
) -> MeasuredTarget:
    cost = median_interval([statistics.median(each) for each in ours])
    ratio = Interval(1.0, 1.0, 1.0) if ours is fastest else ratio_interval(ours, fastest, seed=seed)
    outcome = source.outcome(candidate)
    return MeasuredTarget(
        target=name,
        cost_us=cost.value,
        ci95_us=(cost.low, cost.high),
        ratio=ratio.value,
        ratio_ci95=(ratio.low, ratio.high),
        error=outcome.error if isinstance(outcome, Measured) else None,
        variant=source.variant(candidate) or "",
    )


def _untimed(name: str, source: MeasuringCostSource, found: CandidateKernel | str) -> MeasuredTarget:
    if isinstance(found, str):
        return MeasuredTarget(target=name, reason=found)
    outcome = source.outcome(found)
    reason = outcome.reason if isinstance(outcome, Failed | Refused) else "it was not measured in every round"
    return MeasuredTarget(target=name, reason=reason)
