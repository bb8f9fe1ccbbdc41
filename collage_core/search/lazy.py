"""Lazy shortest path: measure only the candidates that a best plan would need.

The idea is LazySP's (C. M. Dellin and S. S. Srinivasa, "A Unifying Formalism for Shortest Path Problems with
Expensive Edge Evaluations via Lazy Best-First Search over Paths with Edge Selectors", ICAPS 2016): search with
estimates for unknown costs, evaluate the unknown edges of the best path, and repeat until it has none. Here an edge is
a candidate, evaluating it means measuring it, and the shortest path is the exact search.

With one set of optimistic estimates this is theirs. Several sets are draws from what is believed: each has a best path,
and what is measured is what is on the paths that save most.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from collage_core.contract.cost import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search.costs import PICOSECONDS_PER_US, CostSource
from collage_core.search.exact import Allow, ExactSearch, SearchLimits, SearchResult
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem

_RENEWED = 6
"""Sets of estimates whose best plan is searched again after each measurement: of the others only its cost is made up
to date, unless nothing is promised any more."""


class Estimates(Protocol):
    """One set of estimated costs of unmeasured candidates. Both results may change as more is measured."""

    def expected_us(self, candidate: SearchCandidate) -> float:
        """Return the estimate that guides the search, in finite microseconds >= 0.

        Candidates with a low estimate are measured.
        """

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """Return a lower bound of the cost, in microseconds; 0 if nothing is known.

        Only this bound proves a plan optimal.
        """


class FromNothing:
    """Estimates without any knowledge: an unmeasured candidate costs nothing."""

    def expected_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        return 0.0

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        return 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LazyStep:
    """One candidate that was measured.

    Attributes:
        candidate: The candidate.
        saving_us: What the plans that needed the measurement were estimated to save, against the best measured plan,
            by the mean over the sets of estimates; infinite while there is none.
        cost: Measured cost; `UNMEASURED` if the measurement gave none.
    """

    candidate: SearchCandidate
    saving_us: float
    cost: Cost | Unmeasured


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LazyResult:
    """Result of a lazy search.

    Attributes:
        result: The cheapest fully measured plan; None if the search ended before there was one.
            `exact` and `gap_us` follow from proven bounds, never from optimistic estimates.
        steps: The measurements, in order.
        searches: Number of searches run.
        finished: Whether nothing was left to measure; False if the search was stopped, or the rest was not
            worth it.
    """

    result: SearchResult | None
    steps: tuple[LazyStep, ...]
    searches: int
    finished: bool


def lazy_search(
    problem: SearchProblem | Prepared,
    costs: CostSource,
    estimates: Sequence[Estimates],
    measure: Callable[[SearchCandidate], None],
    *,
    allow: Allow | None = None,
    limits: SearchLimits | None = None,
    stop: Callable[[], bool] = lambda: False,
    gain: float = 0.0,
) -> LazyResult:
    """Search, measure the unmeasured candidate with the largest part in what best plans save, and repeat.

    A plan's saving is shared by what it lacks, in proportion to what that is estimated to take.

    Which candidates are measured is a function of the problem, the costs and the estimates: a second run over
    costs that are already known takes the same steps.

    Args:
        problem: The problem, prepared or not.
        costs: The known costs; `UNMEASURED` for the rest.
        estimates: Estimates of the unmeasured costs, at least one set; lower bounds are the first one's.
        measure: Measures a candidate and makes its cost available in `costs`. If it is still unmeasured
            afterwards, the candidate is excluded.
        allow: Decides which candidates may be used; all if absent.
        limits: Limits of each search.
        stop: Called before each measurement. Takes effect once the measured candidates make a plan.
        gain: Nothing is measured for less than this share of the best measured plan, by the mean of what the sets
            of estimates say can be saved.

    Returns:
        The best measured plan. It is exact if `gain` is 0, and the only estimates equal their lower bounds.

    Raises:
        NoCoverError: If no plan covers every node, whatever is measured.
        SearchError: If a candidate is not convex, or the limits were reached before any plan was found.
        ValueError: If a cost or an estimate is NaN or negative.
    """
    prepared = prepare(problem)
    refused: set[tuple[str, str]] = set()
    known = _Known(costs, refused)
    ideas = [_Idea(prepared, known, each, allow, limits) for each in estimates]
    steps: list[LazyStep] = []
    best = _measured_plan(prepared, known, allow, limits)
    searches = _searched(ideas, len(ideas))
    while True:
        promising, saving_us = _promising(ideas, best)
        is_little = not promising or (best is not None and saving_us < gain * best.total_us)
        if is_little and (more := _searched(ideas, len(ideas))):
            searches += more
            continue
        if is_little or (best is not None and stop()):
            break
        asked = _asked(promising)
        measure(asked)
        cost = costs.cost(asked)
        if isinstance(cost, Unmeasured):
            refused.add((asked.target, asked.key))
        steps.append(LazyStep(candidate=asked, saving_us=saving_us, cost=cost))
        best = _measured_plan(prepared, known, allow, limits)
        for idea in ideas:
            idea.is_outdated = True
        searches += _searched(ideas, _RENEWED)
    finished = not any(idea.lacking for idea in ideas) and not any(idea.is_outdated for idea in ideas)
    if best is not None:
        best = _judged(best, prepared, known, estimates[0], allow, limits)
    return LazyResult(result=best, steps=tuple(steps), searches=searches, finished=finished)


class _Idea:
    """The best plan by one set of estimates, when that was searched last.

    Attributes:
        estimates: The estimates.
        is_outdated: Whether something was measured since then.
        searched: How often it was searched.
        path: The plan.
    """

    path: SearchResult

    def __init__(
        self,
        prepared: Prepared,
        known: CostSource,
        estimates: Estimates,
        allow: Allow | None,
        limits: SearchLimits | None,
    ) -> None:
        self.estimates = estimates
        self.is_outdated = True
        self.searched = 0
        self._known = known
        self._filled = _Filled(known, estimates.expected_us)
        self._prepared, self._allow, self._limits = prepared, allow, limits
        self._taken_us: list[Cost] = []

    def search(self) -> None:
        """Search the best plan by what is known now."""
        self.path = ExactSearch(self._prepared, self._filled, limits=self._limits).run(self._allow)
        self._taken_us = [self._filled.cost(each) for each in self.path.candidates]
        self.searched += 1
        self.is_outdated = False

    @property
    def total_us(self) -> Cost:
        """What the plan takes by what is known now."""
        now_us = (self._filled.cost(each) for each in self.path.candidates)
        return self.path.total_us + sum(now - then for now, then in zip(now_us, self._taken_us, strict=True))

    @property
    def lacking(self) -> list[SearchCandidate]:
        """What of the plan is not measured."""
        return [each for each in self.path.candidates if isinstance(self._known.cost(each), Unmeasured)]


def _searched(ideas: Sequence[_Idea], most: int) -> int:
    """Search again what is outdated, what cannot be any more and what was searched least first; return how often."""
    outdated = [idea for idea in ideas if idea.is_outdated]
    outdated.sort(key=lambda idea: (idea.searched > 0 and math.isfinite(idea.total_us), idea.searched))
    for idea in outdated[:most]:
        idea.search()
    return len(outdated[:most])


def _promising(ideas: Sequence[_Idea], best: SearchResult | None) -> tuple[list[_Promise], float]:
    """Return the plans that save something, and what all of them save by the mean; infinite without any to compare."""
    total_us = math.inf if best is None else best.total_us
    found = [
        _Promise(total_us - idea.total_us, idea.estimates, lacking)
        for idea in ideas
        if (lacking := idea.lacking) and idea.total_us <= total_us
    ]
    return found, sum(promise.saving_us for promise in found) / len(ideas)


@dataclasses.dataclass(frozen=True, slots=True)
class _Promise:
    """What the best plan by one set of estimates saves, and what it lacks."""

    saving_us: float
    estimates: Estimates
    lacks: Sequence[SearchCandidate]


def _asked(promising: Sequence[_Promise]) -> SearchCandidate:
    """Return the candidate with the largest part in what is promised."""
    parts: dict[SearchCandidate, float] = {}
    taken: dict[SearchCandidate, float] = {}
    for promise in promising:
        expected = {candidate: promise.estimates.expected_us(candidate) for candidate in promise.lacks}
        whole = sum(expected.values())
        # before there is any plan, all promise the same
        saving = promise.saving_us if math.isfinite(promise.saving_us) else 1.0
        for candidate, each in expected.items():
            parts[candidate] = parts.get(candidate, 0.0) + saving * (each / whole if whole else 1 / len(expected))
            taken[candidate] = taken.get(candidate, 0.0) + each
    return max(parts, key=lambda c: (parts[c], taken[c], -c.nodes, c.target))


def _measured_plan(
    prepared: Prepared, known: CostSource, allow: Allow | None, limits: SearchLimits | None
) -> SearchResult | None:
    try:
        return ExactSearch(prepared, known, limits=limits).run(allow)
    except NoCoverError:
        return None


def _judged(
    best: SearchResult,
    prepared: Prepared,
    known: CostSource,
    estimates: Estimates,
    allow: Allow | None,
    limits: SearchLimits | None,
) -> SearchResult:
    """Set a plan's optimality gap from the lower bounds of the estimates."""
    proven = ExactSearch(prepared, _Filled(known, estimates.at_least_us), limits=limits).run(allow)
    bound_us = proven.total_us - proven.gap_us
    gap_us = max(0.0, best.total_us - bound_us)
    exact = proven.exact and gap_us * PICOSECONDS_PER_US < 1
    problem = prepared.problem
    unmeasured = sum(
        1
        for candidate, shape in zip(problem.candidates, prepared.shapes, strict=True)
        if shape is not None and (allow is None or allow(candidate)) and isinstance(known.cost(candidate), Unmeasured)
    )
    return dataclasses.replace(best, exact=exact, gap_us=0.0 if exact else gap_us, method="lazy", unmeasured=unmeasured)


class _Known:
    """Known costs; candidates whose measurement failed are invalid."""

    def __init__(self, costs: CostSource, refused: set[tuple[str, str]]) -> None:
        self._costs = costs
        self._refused = refused

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        if (candidate.target, candidate.key) in self._refused:
            return INVALID
        return self._costs.cost(candidate)


class _Filled:
    """Known costs, with estimates for the rest."""

    def __init__(self, known: CostSource, estimate: Callable[[SearchCandidate], float]) -> None:
        self._known = known
        self._estimate = estimate

    def cost(self, candidate: SearchCandidate) -> Cost:
        cost = self._known.cost(candidate)
        return self._estimate(candidate) if isinstance(cost, Unmeasured) else cost
