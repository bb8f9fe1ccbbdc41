"""An exploration as a value: each step takes one and returns the next."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Hashable, Mapping, Sequence

from collage.measure.budget import UNLIMITED, Budget
from collage.measure.driver.source import MeasuringCostSource
from collage.options import Preset
from collage.report import figures
from collage.report.facts.search_facts import BestSoFar
from collage.report.progress import Progress
from collage_core.candidates.all_proposals import AllProposals
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals, TargetRule
from collage_core.candidates.refusals import TargetFailure
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateBounds, quantised_groups
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import SearchResult


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplorationSetup:
    """What an exploration is given.

    Attributes:
        rules: The targets with their rules.
        source: Measures; the pool's costs come from it.
        preset: How much to measure.
        bounds: How many candidates to make.
        progress: Receives progress updates.
        budget: Time after which only what a plan cannot do without is measured: the whole model on each target, and
            single operators nothing else covers.
        running_s: Seconds that candidates may run before the same holds. They are counted by what is recorded, so that
            a later run over the same database stops at the same point.
    """

    rules: Sequence[TargetRule]
    source: MeasuringCostSource
    preset: Preset
    bounds: CandidateBounds
    progress: Progress
    budget: Budget = UNLIMITED
    running_s: float = math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploration:
    """What an exploration knows after a step.

    Attributes:
        setup: What it was given.
        pool: The candidates, with what this run found out of their costs.
        proposed: What targets proposed so far.
        rounds: Searches run.
        search_s: Seconds spent searching.
        skipped: Measurements that the budget left out.
        ran_s: Seconds that candidates ran to be selected.
        well: Targets that came to something.
        hangs: On how many candidates each target hung before it came to something.
        given_up: Keys of what was not measured of each target that did nothing but hang, by its name.
        began: When it began, by `time.monotonic`.
        history: The best plan over time, whenever it changed.
    """

    setup: ExplorationSetup
    pool: CandidatePool
    proposed: AllProposals
    rounds: int = 0
    search_s: float = 0.0
    skipped: int = 0
    ran_s: float = 0.0
    well: frozenset[str] = frozenset()
    hangs: Mapping[str, int] = dataclasses.field(default_factory=dict)
    given_up: Mapping[str, frozenset[Hashable]] = dataclasses.field(default_factory=dict)
    began: float = dataclasses.field(default_factory=time.monotonic)
    history: tuple[BestSoFar, ...] = ()

    @classmethod
    def begin(cls, setup: ExplorationSetup, pool: CandidatePool) -> Exploration:
        """Return an exploration that has done nothing yet, whatever the database knows.

        Args:
            setup: What it is given.
            pool: Candidates to begin with, usually none.
        """
        return cls(
            setup=setup,
            pool=pool.with_costs(pool.costs.afresh()),
            proposed=AllProposals(groups=quantised_groups(pool.graph)),
        )

    @property
    def graph(self) -> DataflowGraph:
        """The graph that is explored."""
        return self.pool.graph

    @property
    def is_spent(self) -> bool:
        """Whether the budget has ended."""
        return self.setup.budget.is_spent

    @property
    def has_run_enough(self) -> bool:
        """Whether candidates have run for as long as they may."""
        return self.ran_s >= self.setup.running_s

    def told(self, best: SearchResult) -> Exploration:
        """Show the best plan of what is known now against the best single toolchain; remember it if it is another."""
        pool, reached = self.pool, self.pool.costs.reached
        alone = {
            candidate.target.name: cost
            for candidate in pool
            if pool.is_whole(candidate) and (cost := pool.selected_us(candidate)) is not None
        }
        text = f"best plan so far {figures.milliseconds(best.total_us / 1000)} ms, predicted"
        if alone:
            name = min(alone, key=lambda each: (alone[each], each))
            text += f"; best single toolchain {name}, {figures.milliseconds(alone[name] / 1000)} ms"
        self.setup.progress.standing(text)
        predicted_ms = best.total_us / 1000
        if self.history and self.history[-1].predicted_ms == predicted_ms:
            return self
        found = BestSoFar(
            seconds=time.monotonic() - self.began,
            candidates=0 if reached is None else len(reached),
            predicted_ms=predicted_ms,
        )
        return dataclasses.replace(self, history=(*self.history, found))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explored:
    """What an exploration came to.

    Attributes:
        pool: The candidates, with what this run found out of their costs.
        proposals: What each target proposed, by target name.
        failures: Targets whose plugin failed to propose; what they proposed before stays.
        result: The last search.
        rounds: Searches run.
        left_out: What bounds and budget cut off, a sentence each.
        search_s: Seconds spent searching.
        history: The best plan over time, whenever it changed.
    """

    pool: CandidatePool
    proposals: Mapping[str, Proposals]
    failures: tuple[TargetFailure, ...] = ()
    result: SearchResult
    rounds: int
    left_out: tuple[str, ...]
    search_s: float
    history: tuple[BestSoFar, ...] = ()


class UncoveredError(NoCoverError):
    """Raised when no plan covers the graph.

    Attributes:
        exploration: What was known when that came to light, for whoever explains it.
    """

    def __init__(self, error: NoCoverError, exploration: Exploration) -> None:
        self.exploration = exploration
        super().__init__(error.nodes, stuck=error.stuck)
