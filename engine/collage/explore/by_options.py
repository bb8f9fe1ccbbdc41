"""The exploration that a user's options ask for, and what is said where no plan covers the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from collage.control.pins import Pins
from collage.errors import PinError
from collage.explore.exhaustive import explore_exhaustively
from collage.explore.exploration import ExplorationSetup, Explored, UncoveredError
from collage.explore.lazy import explore_lazily
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.driver.source import MeasuringCostSource
from collage.options import OptimizeOptions
from collage.report.progress import Progress
from collage.setup.settings import candidate_bounds
from collage_core.candidates.explanation import pairs_apart, refusals, why_uncovered
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule
from collage_core.candidates.refusals import TargetFailure
from collage_core.errors import NoCoverError


def explore(
    source: MeasuringCostSource,
    pool: CandidatePool,
    rules: Sequence[TargetRule],
    options: OptimizeOptions,
    pins: Pins,
    failures: Sequence[TargetFailure],
    progress: Progress,
    budget: Budget = UNLIMITED,
) -> Explored:
    """Measure and search as the options say.

    Args:
        source: Measures.
        pool: A pool without candidates.
        rules: The targets with their rules, pins applied.
        options: How much to measure, and by which search.
        pins: Nodes that the user gave away; named where they are in the way.
        failures: Targets whose plugin failed before.
        progress: Receives progress updates.
        budget: See `ExplorationSetup`.

    Raises:
        NoCoverError: If no plan covers the graph; says why.
        PinError: If a pin is in the way.
    """
    lazy = options.search in ("lazy", "two-level")
    setup = ExplorationSetup(
        rules=rules,
        source=source,
        preset=options.effective,
        bounds=candidate_bounds(options),
        progress=progress,
        budget=budget,
        running_s=options.effective.running_s if lazy else math.inf,
    )
    try:
        return (explore_lazily if lazy else explore_exhaustively)(setup, pool)
    except UncoveredError as error:
        raise explained(error, failures, pins) from error


def explained(
    error: UncoveredError, failures: Iterable[TargetFailure], pins: Pins | None = None
) -> NoCoverError | PinError:
    """Return the error with what each target said of the nodes that nothing covers.

    Args:
        error: What the exploration found.
        failures: Targets whose plugin failed before it.
        pins: Nodes that the user gave away; None if none can be.
    """
    exploration = error.exploration
    pool, proposed = exploration.pool, exploration.proposed
    facts = refusals(proposed.by_target.values(), pool=pool)
    whole = why_uncovered(error, pool.graph, facts, failures=(*failures, *proposed.failures), pool=pool)
    if pins is None or (error.stuck and pairs_apart(pool)):
        return whole
    return pins.explained(whole, facts)
