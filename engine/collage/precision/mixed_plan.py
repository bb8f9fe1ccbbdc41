"""Mix kernels of several precisions in one plan, where no single one for the whole model uses the bound up."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from collage.measure.driver.source import MeasuringCostSource
from collage.precision.segments import segments
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.report.progress import Progress
from collage_core.candidates.costs import CacheKey
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, UNMEASURED, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.search import (
    Prepared,
    SearchCandidate,
    bounded_search,
    learnt_bound_search,
    prepare,
)

NAME: Final = "mixed-precision"
"""Name of the plan."""
_SHARES: Final = (1.0, 0.7, 1.4)
"""Bounds for which the cheapest plans are measured: errors are guesses until a plan was run."""
_MEASURED: Final = 16
"""Kernels that are measured at most."""
_OPTIMISM: Final = 0.9
"""What guesses are multiplied by, so that a kernel is measured that may be better than it is guessed to be."""
_RUNS: Final = 4
"""Plans that are run at most."""
_WITHIN, _SEARCHES = 0.01, 60
"""Limits of each search: a gap of 1 %, and exact searches."""
_WORTH: Final = 0.02
"""Share by which a plan has to be faster than the best kernel for the whole model to be looked at."""


class PrecisionMix:
    """Looks for one plan.

    Args:
        pool: What was measured, with kernels for the whole model that keep to the bound.
        wholes: Kernels for the whole model whose runs of nodes may be kernels, with their costs in microseconds.
        sensitivities: What each group of products does to the outputs.
        bound: Largest error.
        known: Errors of plans with one kernel, by kernel.
        source: Measures.
        plan_error: Runs a plan and returns its error.
        is_spent: Whether no more kernels are measured and no more plans are run.
        progress: Receives progress updates.
    """

    def __init__(
        self,
        pool: CandidatePool,
        wholes: Sequence[tuple[CandidateKernel, float]],
        sensitivities: Sensitivities,
        bound: float,
        known: Mapping[CandidateKernel, float],
        source: MeasuringCostSource,
        plan_error: Callable[[Plan], float],
        is_spent: Callable[[], bool],
        progress: Progress,
    ) -> None:
        made = list(segments(pool, wholes, sensitivities))
        self._pool = pool.with_candidates(each.candidate for each in made)
        self._guesses: dict[CacheKey, float] = {
            self._pool.cache_key(each.candidate): each.guess_us for each in reversed(made)
        }
        self._bound = bound
        self._known = known
        self._source = source
        self._plan_error = plan_error
        self._is_spent = is_spent
        self._progress = progress
        self._problem: Prepared = prepare(self._pool.problem())
        self._candidates = [self._pool.candidate(each) for each in self._problem.problem.candidates]
        self._squares = [sensitivities.square(each) for each in self._candidates]
        self._reached: set[CacheKey] = set()
        self._measured_us: dict[CacheKey, float] = {}

    def plan(self, below_us: float) -> Plan | None:
        """Return the plan; None if there is none worth timing.

        Args:
            below_us: Cost of the best kernel for the whole model that keeps to the bound.
        """
        if not all(math.isfinite(square) for square in self._squares):
            return None
        for share in _SHARES:
            self._measure(share * self._bound, below_us)
        found = learnt_bound_search(
            self._problem,
            [self._cost(each, guessed=False) for each in self._candidates],
            [math.sqrt(square) for square in self._squares],
            self._bound,
            self._run,
            known=[((self._pool.searched(kernel),), error) for kernel, error in self._known.items()],
            most_runs=0 if self._is_spent() else _RUNS,
            worth=_WORTH,
        )
        if found is None or len(found.candidates) < 2 or found.total_us > (1 - _WORTH) * below_us:
            return None
        return self._as_plan(found.candidates)

    def _measure(self, bound: float, below_us: float) -> None:
        """Measure what the cheapest plan within a bound lacks, until it lacks nothing."""
        while len(self._reached) < _MEASURED and not self._is_spent():
            costs = [self._cost(each, guessed=True) for each in self._candidates]
            try:
                found = bounded_search(
                    self._problem, costs, self._squares, bound**2, within=_WITHIN, most_searches=_SEARCHES
                )
            except NoCoverError:
                return
            if found is None or found.total_us > (1 - _WORTH) * below_us:
                return
            chosen = [self._pool.candidate(each) for each in found.candidates]
            missing = [each for each in chosen if isinstance(self._cost(each, guessed=False), Unmeasured)]
            if not missing:
                return
            self._progress.phase("measuring regions of lower precision", len(missing))
            for candidate in missing:
                self._source.measure([candidate])
                key, cost = self._pool.cache_key(candidate), self._source.cost(candidate, confirmed=False)
                self._reached.add(key)
                if key in self._guesses and not isinstance(cost, Unmeasured):
                    self._measured_us[key] = cost
                self._progress.advance()

    def _cost(self, candidate: CandidateKernel, *, guessed: bool) -> Cost | Unmeasured:
        """Return what a kernel costs as far as this run knows, or what it is guessed to."""
        key = self._pool.cache_key(candidate)
        if key in self._reached:
            return self._source.cost(candidate, confirmed=False)
        known = self._pool.cost(candidate)
        if not isinstance(known, Unmeasured):
            return known
        if not guessed or key not in self._guesses:
            return UNMEASURED
        return _OPTIMISM * self._off_by(candidate.target.name) * self._guesses[key]

    def _off_by(self, target: str) -> float:
        """Return what kernels of a target take relative to what they were guessed to; 1 if none was measured."""
        ratios = [
            cost / self._guesses[key] for key, cost in self._measured_us.items() if key[0] == target and cost != INVALID
        ]
        return statistics.median(ratios) if ratios else 1.0

    def _run(self, chosen: Sequence[SearchCandidate]) -> float:
        return self._plan_error(self._as_plan(chosen))

    def _as_plan(self, chosen: Sequence[SearchCandidate]) -> Plan:
        kernels = tuple(self._pool.candidate(each) for each in chosen)
        costs = [self._cost(each, guessed=False) for each in kernels]
        return Plan(
            name=NAME,
            single=False,
            partitioning=Partitioning(self._pool.graph, kernels),
            costs_us=tuple(INVALID if isinstance(cost, Unmeasured) else cost for cost in costs),
            dispatch_us=self._pool.dispatch_us,
            copies=self._pool.copies(kernels),
        )
