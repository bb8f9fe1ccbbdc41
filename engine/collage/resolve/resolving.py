"""Solve a model again for a machine, from what a store has of it: nothing is measured, built or run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage.control.choices import UserChoices
from collage.decide.decision import Decision, decide
from collage.decide.feedback import with_feedback
from collage.decide.races.saved_races import EndToEndTimings, SavedRaces, distinct, now
from collage.decide.shortlist import shortlist
from collage.explore.by_options import explore
from collage.options import OptimizeOptions
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


class NotRacedError(Exception):
    """Raised for plans that did not race on the machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolved:
    """A plan for a machine that may be elsewhere.

    Attributes:
        host: The machine.
        plan: The plan.
        pool: The candidates it was chosen from.
        decision: Why it is this one; None if these plans did not race there, and what kernels take decides.
        notes: What the user should know, a sentence each.
    """

    host: Host
    plan: Plan
    pool: CandidatePool
    decision: Decision | None
    notes: tuple[str, ...]


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
        pool, decision = explored.pool, None
        try:
            timings = races.run(plans, after=None)
        except NotRacedError:
            notes.append(f"these plans did not race on {host.fingerprint!r}: the plan is the best by what kernels take")
            chosen = min(plans, key=lambda plan: (plan.predicted_us, plan.name))
        else:
            usual_us = machine.source.usual_calibration_us
            common = {"usual_us": usual_us, "seed": options.seed, "tie_breaking": user.tie_breaking}
            try:
                found = with_feedback(pool, plans, timings, races.run, most=most, **common)
            except NotRacedError:
                notes.append("what looks better by times in place did not race there")
                found = with_feedback(pool, plans, timings, None, most=most, **common)
            pool, plans, timings = found.pool, list(found.plans), found.timings
            failed = [plan.name for plan in plans if not plan.single and plan.name in timings.failed]
            decision = decide(timings.timed, options.seed, failed=failed, tie_breaking=user.tie_breaking)
            chosen = next(plan for plan in plans if plan.name == decision.winner)
        notes = [*machine.notes, *notes]
    return Resolved(host=host, plan=chosen, pool=pool, decision=decision, notes=tuple(notes))


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
    selection = Selection.parse(options.toolchains, options.exclude)
    for spelling in selection.wanted or ():
        if spelling.toolchain not in known:
            said = f"{store.url} knows nothing of this model with {spelling.toolchain} on {host.fingerprint!r}"
            raise UsageError(f"{said}; it knows {', '.join(known)}")
    found = tuple(take for take in takes if not selection.reason_against(take.target))
    if not found:
        raise UsageError(f"no target is left of what {store.url} knows there: {', '.join(known)}")
    return found
