"""Measuring only what a best plan would need: a lazy shortest path.

The idea is LazySP's (C. M. Dellin and S. S. Srinivasa, "A Unifying Formalism for Shortest Path Problems with
Expensive Edge Evaluations via Lazy Best-First Search over Paths with Edge Selectors", ICAPS 2016): search as if what is
not known cost what one hopes, look at what the best path lacks, and search again, until it lacks nothing. Here an edge
is a candidate, evaluating it is measuring it, and the shortest path is the exact search.
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
    """What candidates may cost that nobody measured. Both answers may change as more is measured."""

    def expected_us(self, candidate: SearchCandidate) -> float:
        """What to go by: hopeful, finite microseconds >= 0. What is hoped for is looked at."""

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """What it cannot cost less than, in microseconds; 0 if nothing is known. Only this proves a plan the best."""


class FromNothing:
    """Estimates of whoever knows nothing: what is not measured is free until it is."""

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
        candidate: Which.
        expected_us: What was hoped for.
        cost: What came out; `UNMEASURED` if nothing did.
        path_us: Hoped-for cost of the best plan that asked for it.
    """

    candidate: SearchCandidate
    expected_us: float
    cost: Cost | Unmeasured
    path_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LazyResult:
    """How a lazy search ended.

    Attributes:
        result: The cheapest plan of which everything is measured; None if the search ended before there was one.
            `exact` and `gap_us` follow from what the estimates prove, never from what they hope.
        steps: What was measured, in order.
        searches: Searches run.
        finished: Whether nothing was left to ask; False if it was stopped, or what was left was not worth it.
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
    """Searches, measures the dearest unmeasured candidate of the best plan, and searches again.

    Which candidates are measured is a function of the problem, the costs and the estimates: a second run over costs
    that are known already takes the same steps.

    Args:
        problem: The problem, prepared or not.
        costs: What is known; answers `UNMEASURED` for the rest.
        estimates: What the rest may cost.
        measure: Has a candidate measured; afterwards `costs` answers for it. If it still does not, the candidate is
            left out.
        allow: Which candidates may be used; all if absent.
        limits: Of each search.
        stop: Asked before each measurement. Heeded once the measured candidates make a plan.
        gain: A plan that promises to save less than this share of the best measured one is not followed.
        follow: Whether a plan of which something is not measured is worth it, going by what it promises; if not, the
            search ends.

    Returns:
        The best measured plan. With `gain` 0, every plan followed, and estimates that equal what they prove, it is
        exact.

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
    """Says of a plan how far from the best it can be, going by what estimates prove."""
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
    """What is known, and that what was measured in vain is of no use."""

    def __init__(self, costs: CostSource, refused: set[tuple[str, str]]) -> None:
        self._costs = costs
        self._refused = refused

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        if (candidate.target, candidate.key) in self._refused:
            return INVALID
        return self._costs.cost(candidate)


class _Filled:
    """What is known, and an estimate for the rest."""

    def __init__(self, known: CostSource, estimate: Callable[[SearchCandidate], float]) -> None:
        self._known = known
        self._estimate = estimate

    def cost(self, candidate: SearchCandidate) -> Cost:
        cost = self._known.cost(candidate)
        return self._estimate(candidate) if isinstance(cost, Unmeasured) else cost
