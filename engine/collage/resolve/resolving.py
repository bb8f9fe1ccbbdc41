"""Solve a model again for a machine, from what a store has of it: nothing is measured, built or run."""

from __future__ import annotations

from collage.control.choices import UserChoices
from collage.decide.shortlist import shortlist
from collage.explore.by_options import explore
from collage.options import OptimizeOptions
from collage.report.progress import Progress
from collage.resolve.elsewhere import Elsewhere
from collage.resolve.recorded_races import RecordedRaces
from collage.resolve.resolved import Resolved, report_of
from collage.resolve.selecting import selected_takes
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage.store import TuningStore
from collage_core.contract import Host


def resolve_on(
    store: TuningStore, host: Host, workload: Workload, options: OptimizeOptions, progress: Progress
) -> Resolved:
    """Find the best plan of a model on a machine.

    Args:
        store: What is known.
        host: The machine.
        workload: The model.
        options: As for `optimize`; no error is allowed.
        progress: Receives progress updates.

    Raises:
        UsageError: If the store knows too little of the model on that machine.
        CollageError: If no plan covers the model.
    """
    choices = SetupChoices.of(options)
    takes = selected_takes(store, host, workload.graph, choices)
    user = UserChoices.read(options)
    targets = [take.target for take in takes]
    graph_choices = user.over(workload.graph, targets)
    rules = graph_choices.rules([take.rule(workload.graph) for take in takes])
    with Elsewhere.open(store, host, takes, workload, choices) as machine:
        source, pins = machine.source, graph_choices.pins
        pool = explore(source, machine.pool, rules, options, pins, (), progress).pool
        plans, notes = shortlist(pool, targets, options.effective.challengers, source, user.tie_breaking)
        races = RecordedRaces.of(options, store, workload, machine, user.tie_breaking)
        chosen = races.choose(pool, plans, source.usual_calibration_us)
        report = report_of(
            machine,
            workload,
            chosen.plan,
            measured_us=chosen.measured_us,
            decision=chosen.decision,
            notes=[*notes, *chosen.notes],
        )
    return Resolved(report=report, plan=chosen.plan, pool=chosen.pool)
