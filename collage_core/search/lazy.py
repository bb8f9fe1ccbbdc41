"""Lazy shortest path: measure only the candidates that a best plan would need.

The idea is LazySP's (C. M. Dellin and S. S. Srinivasa, "A Unifying Formalism for Shortest Path Problems with
Expensive Edge Evaluations via Lazy Best-First Search over Paths with Edge Selectors", ICAPS 2016): search with
optimistic estimates for unknown costs, evaluate the unknown edges of the best path, and repeat until it has none.
Here an edge is a candidate, evaluating it means measuring it, and the shortest path is the exact search.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

from collage_core.contract.cost import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search.costs import PICOSECONDS_PER_US, CostSource
from collage_core.search.exact import Allow, ExactSearch, SearchLimits, SearchResult
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem


class Estimates(Protocol):
    """Estimated costs of unmeasured candidates. Both results may change as more is measured."""

    def expected_us(self, candidate: SearchCandidate) -> float:
        """Return the optimistic estimate that guides the search, in finite microseconds >= 0.

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
        expected_us: Estimated cost.
        cost: Measured cost; `UNMEASURED` if the measurement gave none.
        path_us: Estimated cost of the best plan that needed the measurement.
    """

    candidate: SearchCandidate
    expected_us: float
    cost: Cost | Unmeasured
    path_us: float


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
    estimates: Estimates,
    measure: Callable[[SearchCandidate], None],
    *,
    allow: Allow | None = None,
    limits: SearchLimits | None = None,
    stop: Callable[[], bool] = lambda: False,
    gain: float = 0.0,
    follow: Callable[[SearchResult], bool] = lambda path: True,
) -> LazyResult:
    """Search, measure the costliest unmeasured candidate of the best plan, and repeat.

    Which candidates are measured is a function of the problem, the costs and the estimates: a second run over
    costs that are already known takes the same steps.

    Args:
        problem: The problem, prepared or not.
        costs: The known costs; `UNMEASURED` for the rest.
        estimates: Estimates of the unmeasured costs.
        measure: Measures a candidate and makes its cost available in `costs`. If it is still unmeasured
            afterwards, the candidate is excluded.
        allow: Decides which candidates may be used; all if absent.
        limits: Limits of each search.
        stop: Called before each measurement. Takes effect once the measured candidates make a plan.
        gain: A plan whose estimated saving is less than this share of the best measured one is not pursued.
        follow: Decides from its estimated cost whether a plan with unmeasured candidates is worth measuring; if
            not, the search ends.

    Returns:
        The best measured plan. It is exact if `gain` is 0, every plan is followed, and the estimates equal their
        lower bounds.

    Raises:
        NoCoverError: If no plan covers every node, whatever is measured.
        SearchError: If a candidate is not convex, or the limits were reached before any plan was found.
        ValueError: If a cost or an estimate is NaN or negative.
    """
    prepared = prepare(problem)
    refused: set[tuple[str, str]] = set()
    known = _Known(costs, refused)
    hoped = _Filled(known, estimates.expected_us)
    steps: list[LazyStep] = []
    searches = 0
    best: SearchResult | None = None
    while True:
        searches += 1
        path = ExactSearch(prepared, hoped, limits=limits).run(allow)
        lacking = [c for c in path.candidates if isinstance(known.cost(c), Unmeasured)]
        if not lacking:
            best, finished = path, True
            break
        if best is None or steps:
            best = _measured_plan(prepared, known, allow, limits)
        promised_us = math.inf if best is None else best.total_us * (1 - gain)
        finished = False
        if path.total_us > promised_us or not follow(path) or (best is not None and stop()):
            break
        asked = max(lacking, key=lambda c: (estimates.expected_us(c), -c.nodes, c.target))
        expected_us = estimates.expected_us(asked)
        measure(asked)
        cost = costs.cost(asked)
        if isinstance(cost, Unmeasured):
            refused.add((asked.target, asked.key))
        steps.append(LazyStep(candidate=asked, expected_us=expected_us, cost=cost, path_us=path.total_us))
    if best is not None:
        best = _judged(best, prepared, known, estimates, allow, limits)
    return LazyResult(result=best, steps=tuple(steps), searches=searches, finished=finished)


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
