"""Solve a model again for a machine, from what a store has of it: nothing is measured, built or run."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

from collage.control.choices import UserChoices
from collage.control.plan_file import plan_document, write_plan
from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import decide
from collage.decide.feedback import WithFeedback, with_feedback
from collage.decide.races.saved_races import EndToEndTimings, SavedRaces, distinct, now
from collage.decide.shortlist import shortlist
from collage.explore.by_options import explore
from collage.options import OptimizeOptions
from collage.report.facts.resolve_facts import ResolvedKernel, ResolveReport
from collage.report.progress import Progress
from collage.resolve.elsewhere import Elsewhere
from collage.resolve.noting import takes_of
from collage.resolve.saved_takes import SavedTake
from collage.setup.settings import SetupChoices
from collage.setup.targets import Selection
from collage.setup.workload import Workload
from collage.store import TuningStore
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Host
from collage_core.errors import UsageError
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits

_UNRACED = "these plans did not race there: it is the cheapest by what its kernels take alone"


class NotRacedError(Exception):
    """Raised for plans that did not race on the machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolved:
    """A plan for a machine that may be elsewhere.

    Attributes:
        report: What is known of it.
        plan: The plan.
        pool: The candidates it was chosen from.
        raced: Whether its race there decided; otherwise what kernels take did.
    """

    report: ResolveReport
    plan: Plan
    pool: CandidatePool
    raced: bool

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, and the cost of every candidate that has one, as `optimize` does there.

        Raises:
            OSError: If it cannot be written.
        """
        model = self.report.model
        write_plan(path, plan_document(self.plan, self.pool, model=model.name, nodes=model.nodes))


def resolve_on(
    store: TuningStore, host: Host, workload: Workload, options: OptimizeOptions, progress: Progress
) -> Resolved:
    """Find the best plan of a model on a machine.

    Args:
        store: What is known.
        host: The machine.
        workload: The model.
        options: As for `optimize`; those that allow an error are refused.
        progress: Receives progress updates.

    Raises:
        UsageError: If the store knows too little of the model on that machine, or an option cannot be kept.
        CollageError: If no plan covers the model.
    """
    if options.error_allowed is not None:
        raise UsageError("errors of lower precision are found by running kernels: optimize with that bound there")
    takes = _selected(takes_of(store, host, workload.graph), options, store, host)
    choices = SetupChoices.of(options)
    user = UserChoices.read(options)
    targets = [take.target for take in takes]
    graph_choices = user.over(workload.graph, targets)
    with Elsewhere.open(store, host, takes, workload, choices) as machine:
        explored = explore(
            machine.source,
            machine.pool,
            graph_choices.rules([take.rule(workload.graph) for take in takes]),
            options,
            graph_choices.pins,
            (),
            progress,
        )
        most = options.effective.challengers
        plans, notes = shortlist(explored.pool, targets, most, machine.source, user.tie_breaking)
        races = _Races(
            SavedRaces(
                database=store,
                model=workload.sha256,
                model_key=workload.key,
                host=host,
                threads=machine.threads,
                tolerance=machine.source.settings.inexact_tolerance.relative,
                preset=options.effective,
                deterministic=options.deterministic,
                plugins=machine.plugins,
                sizes=workload.sizes_in_turn,
                percent=options.percentile,
            )
        )
        pool, decision, measured_us = explored.pool, _UNRACED, None
        try:
            timings = races.run(plans, after=None)
        except NotRacedError:
            chosen = min(plans, key=lambda plan: (plan.predicted_us, plan.name))
        else:
            found = _fed_back(pool, plans, timings, races, machine, options, user.tie_breaking)
            pool, plans, timings = found.pool, list(found.plans), found.timings
            failed = [plan.name for plan in plans if not plan.single and plan.name in timings.failed]
            decided = decide(timings.timed, options.seed, failed=failed, tie_breaking=user.tie_breaking)
            chosen = next(plan for plan in plans if plan.name == decided.winner)
            decision = decided.reason
            [measured_us] = [each.time_us for each in timings.timed if each.name == decided.winner]
    report = ResolveReport(
        model=workload.facts,
        host=host.fingerprint,
        threads=machine.threads,
        predicted_ms=chosen.predicted_us / 1000,
        measured_ms=None if measured_us is None else measured_us / 1000,
        decision=decision,
        kernels=tuple(map(functools.partial(_facts, chosen), chosen.kernels)),
        notes=(*machine.notes, *notes),
    )
    return Resolved(report=report, plan=chosen, pool=pool, raced=measured_us is not None)


def _fed_back(
    pool: CandidatePool,
    plans: Sequence[Plan],
    timings: EndToEndTimings,
    races: _Races,
    machine: Elsewhere,
    options: OptimizeOptions,
    tie_breaking: TieBreaking,
) -> WithFeedback:
    """Feed a race back into the costs; plans that look better then count if they raced there, too."""
    again = functools.partial(
        with_feedback,
        pool,
        plans,
        timings,
        usual_us=machine.source.usual_calibration_us,
        most=options.effective.challengers,
        seed=options.seed,
        tie_breaking=tie_breaking,
    )
    try:
        return again(races.run)
    except NotRacedError:
        return again(None)


def _facts(plan: Plan, kernel: CandidateKernel) -> ResolvedKernel:
    sub_graph = kernel.sub_graph
    return ResolvedKernel(
        target=kernel.target.name,
        composite=sub_graph.label,
        nodes=sub_graph.names,
        operators=tuple(sub_graph.graph.nodes[index].op_type for index in iterate_bits(sub_graph.nodes)),
        cost_us=plan.cost_of[sub_graph.nodes],
    )


class _Races:
    """Races as they were run on the machine."""

    def __init__(self, saved: SavedRaces) -> None:
        self._saved = saved

    def run(self, plans: Sequence[Plan], *, after: EndToEndTimings | None) -> EndToEndTimings:
        """Return what came of racing plans.

        Raises:
            NotRacedError: If they did not race.
        """
        chosen = distinct(plans)
        name = self._saved.name(chosen, after)
        known = self._saved.get(name)
        if known is None:
            raise NotRacedError
        return self._saved.timings(name, known, chosen, after, now())


def _selected(
    takes: Sequence[SavedTake], options: OptimizeOptions, store: TuningStore, host: Host
) -> tuple[SavedTake, ...]:
    """Return what the targets take that take part.

    Raises:
        UsageError: If there is none, or a toolchain is named of which nothing is known.
    """
    known = sorted({take.target.toolchain for take in takes})
    if not takes:
        raise UsageError(f"{store.url} knows nothing of this model on {host.fingerprint!r}: optimize it there first")
    selection = Selection.parse(options.toolchains, options.exclude, inexact=False)
    for spelling in selection.wanted or ():
        if spelling.toolchain not in known:
            said = f"{store.url} knows nothing of this model with {spelling.toolchain} on {host.fingerprint!r}"
            raise UsageError(f"{said}; it knows {', '.join(known)}")
    found = tuple(take for take in takes if not selection.reason_against(take.target))
    if not found:
        raise UsageError(f"no target is left of what {store.url} knows there: {', '.join(known)}")
    return found
