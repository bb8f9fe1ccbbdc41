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
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from collage_core.contract.cost import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search.costs import PICOSECONDS_PER_US, CostSource, cost_of
from collage_core.search.exact import Allow, SearchLimits, SearchResult
from collage_core.search.normal import Matrix, Positions, Vector
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem
from collage_core.search.repeated import RepeatedSearch

_RENEWED = 6
"""Sets of estimates whose best plan is searched again after each measurement: of the others only its cost is made up
to date, unless nothing is promised any more."""
_AT_ONCE = 16
"""Kernels that best plans lack, by the mean, for each that is measured before plans are searched again."""


class Estimates(Protocol):
    """Sets of estimated costs of unmeasured candidates. All may change as more is measured."""

    def expected_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
        """Return a row for each set, at least one: the estimates that guide the search, finite microseconds >= 0.

        Candidates with a low estimate are measured.
        """

    def at_least_us(self, candidates: Sequence[SearchCandidate]) -> Vector:
        """Return lower bounds of the costs, in microseconds; 0 where nothing is known.

        Only these prove a plan optimal.
        """


class FromNothing:
    """Estimates without any knowledge: an unmeasured candidate costs nothing."""

    def expected_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
        """See `Estimates`."""
        return np.zeros((1, len(candidates)))

    def at_least_us(self, candidates: Sequence[SearchCandidate]) -> Vector:
        """See `Estimates`."""
        return np.zeros(len(candidates))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LazyStep:
    """One candidate that was measured.

    Attributes:
        candidate: The candidate.
        saving_us: What the best plans were estimated to save then, against the best measured plan, by the mean over
            the sets of estimates; infinite while there is none.
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
    estimates: Estimates,
    measure: Callable[[Sequence[SearchCandidate]], None],
    *,
    allow: Allow | None = None,
    limits: SearchLimits | None = None,
    stop: Callable[[int], bool] = lambda lacking: False,
    gain: float = 0.0,
    worth: float = 0.0,
    tell: Callable[[SearchResult], None] = lambda best: None,
) -> LazyResult:
    """Search, measure the unmeasured candidates with the largest part in what best plans save, and repeat.

    A plan's saving is shared by what it lacks, in proportion to what that is estimated to take. Candidates of one
    target and key are one to measure.

    Which candidates are measured is a function of the problem, the costs and the estimates: a second run over
    costs that are already known takes the same steps.

    Args:
        problem: The problem, prepared or not.
        costs: The known costs; `UNMEASURED` for the rest. What is known stays as it is; measuring a candidate may tell
            the costs of others with its key.
        estimates: Estimates of the unmeasured costs.
        measure: Measures candidates and makes their costs available in `costs`. One that is still unmeasured
            afterwards is excluded.
        allow: Decides which candidates may be used; all if absent.
        limits: Limits of each search.
        stop: Called before each measurement with the fewest kernels that a plan lacks which saves something; whether
            nothing more is measured, though there may be no plan yet.
        gain: Nothing is measured for less than this share of the best measured plan, by the mean of what the sets
            of estimates say can be saved.
        worth: Nothing is measured whose own part in that is less than this share of the best measured plan.
        tell: Receives the best measured plan before the first measurement and after each, once there is one.

    Returns:
        The best measured plan. It is exact if `gain` and `worth` are 0, and the only estimates equal their lower
        bounds.

    Raises:
        NoCoverError: If no plan covers every node, whatever is measured.
        SearchError: If a candidate is not convex, or the limits were reached before any plan was found.
        ValueError: If a cost or an estimate is NaN or negative, or an estimate infinite.
    """
    table = _Table(prepare(problem), costs, estimates, allow)
    search = RepeatedSearch(table.prepared, (~np.isinf(table.known_us)).tolist(), limits)
    ideas = [_Idea(table, number, search) for number in range(table.sets)]
    steps: list[LazyStep] = []
    best = _measured_plan(table, search)
    if best is not None:
        tell(best)
    searches = _searched(ideas, len(ideas))
    while True:
        promising, saving_us = _promising(ideas, best)
        least_us = 0.0 if best is None else worth * best.total_us
        asked = [] if best is not None and saving_us < gain * best.total_us else _asked(promising, table, least_us)
        if not asked and (more := _searched(ideas, len(ideas))):
            searches += more
            continue
        if not asked or stop(min(len(promise.lacks) for promise in promising)):
            break
        measure(asked)
        table.learn(asked)
        steps += [LazyStep(candidate=each, saving_us=saving_us, cost=costs.cost(each)) for each in asked]
        best = _measured_plan(table, search)
        if best is not None:
            tell(best)
        for idea in ideas:
            idea.is_outdated = True
        searches += _searched(ideas, _RENEWED)
    finished = not any(idea.lacking for idea in ideas) and not any(idea.is_outdated for idea in ideas)
    if best is not None:
        best = _judged(best, table, search)
    return LazyResult(result=best, steps=tuple(steps), searches=searches, finished=finished)


class _Table:
    """Costs and estimates of all candidates, in their order.

    Attributes:
        prepared: The problem.
        known_us: Costs that are known, infinite for candidates that are not to be used; NaN for the rest.
        filled_us: A row for each set of estimates: what is known, and estimates for the rest.
    """

    def __init__(self, prepared: Prepared, costs: CostSource, estimates: Estimates, allow: Allow | None) -> None:
        self.prepared = prepared
        self._costs, self._estimates = costs, estimates
        self._by_key: dict[str, list[int]] = {}
        self._refused: set[tuple[str, str]] = set()
        self._allowed = [allow is None or allow(candidate) for candidate in self.candidates]
        self._at: dict[SearchCandidate, int] = {}
        for index, candidate in enumerate(self.candidates):
            self._at.setdefault(candidate, index)
            self._by_key.setdefault(candidate.key, []).append(index)
        self.known_us = np.array([self._known(index) for index in range(len(self.candidates))], dtype=np.float64)
        self._fill()

    @property
    def candidates(self) -> Sequence[SearchCandidate]:
        """The candidates."""
        return self.prepared.problem.candidates

    @property
    def sets(self) -> int:
        """Number of sets of estimates."""
        return len(self.filled_us)

    def positions(self, candidates: Iterable[SearchCandidate]) -> list[int]:
        """Return where candidates are in the problem."""
        return [self._at[candidate] for candidate in candidates]

    def learn(self, measured: Iterable[SearchCandidate]) -> None:
        """Look up what was measured, and what has its key; what is still unmeasured is not to be used."""
        for candidate in measured:
            if isinstance(self._costs.cost(candidate), Unmeasured):
                self._refused.add((candidate.target, candidate.key))
            for index in self._by_key[candidate.key]:
                self.known_us[index] = self._known(index)
        self._fill()

    def proven_us(self) -> Vector:
        """Return what is known, and lower bounds for the rest."""
        unknown = np.flatnonzero(np.isnan(self.known_us))
        bounds_us = self._checked(self._estimates.at_least_us(self._candidates_at(unknown)), unknown)
        filled_us = self.known_us.copy()
        filled_us[unknown] = bounds_us
        return filled_us

    def _known(self, index: int) -> float:
        candidate = self.candidates[index]
        if not self._allowed[index] or (candidate.target, candidate.key) in self._refused:
            return INVALID
        cost = cost_of(self._costs, candidate)
        return math.nan if isinstance(cost, Unmeasured) else cost

    def _fill(self) -> None:
        unknown = np.flatnonzero(np.isnan(self.known_us))
        expected_us = self._estimates.expected_us(self._candidates_at(unknown))
        self.filled_us = np.tile(self.known_us, (len(expected_us), 1))
        self.filled_us[:, unknown] = self._checked(expected_us, unknown)

    def _candidates_at(self, positions: Positions) -> list[SearchCandidate]:
        return [self.candidates[index] for index in positions.tolist()]

    def _checked(self, estimates_us: Matrix, unknown: Positions) -> Matrix:
        wrong = ~np.isfinite(estimates_us) | (estimates_us < 0)
        if wrong.any():
            candidate = self.candidates[unknown[np.argwhere(wrong)[0][-1]]]
            raise ValueError(f"{candidate.target}, {candidate.key!r}: an estimate is NaN, infinite or negative")
        return estimates_us


class _Idea:
    """The best plan by one set of estimates, when that was searched last.

    Attributes:
        is_outdated: Whether something was measured since then.
        searched: How often it was searched.
    """

    def __init__(self, table: _Table, number: int, search: RepeatedSearch) -> None:
        self.is_outdated = True
        self.searched = 0
        self._table, self._number, self._search = table, number, search
        self._kernels: list[int] = []
        self._besides_us = 0.0

    def search(self) -> None:
        """Search the best plan by what is known now."""
        filled_us = self._table.filled_us[self._number]
        path = self._search.run(filled_us)
        self._kernels = self._table.positions(path.candidates)
        self._besides_us = path.total_us - float(filled_us[self._kernels].sum())
        self.searched += 1
        self.is_outdated = False

    @property
    def total_us(self) -> Cost:
        """What the plan takes by what is known now."""
        return self._besides_us + float(self._table.filled_us[self._number, self._kernels].sum())

    @property
    def lacking(self) -> list[int]:
        """Positions of what of the plan is not measured."""
        return [index for index in self._kernels if math.isnan(self._table.known_us[index])]

    def expected_us(self, index: int) -> float:
        """Return what a candidate is estimated to take."""
        return float(self._table.filled_us[self._number, index])


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
        _Promise((total_us - idea.total_us) / len(ideas), idea, lacking)
        for idea in ideas
        if (lacking := idea.lacking) and math.isfinite(idea.total_us) and idea.total_us <= total_us
    ]
    return found, sum(promise.saving_us for promise in found)


@dataclasses.dataclass(frozen=True, slots=True)
class _Promise:
    """What the best plan by one set of estimates saves, as its part in the mean, and what it lacks."""

    saving_us: float
    idea: _Idea
    lacks: Sequence[int]


def _asked(promising: Sequence[_Promise], table: _Table, least_us: float) -> list[SearchCandidate]:
    """Return the candidates with the largest parts in what is promised, one for each target and key.

    There are more of them the more the plans lack, and none has less than half of the largest part.
    """
    parts: dict[tuple[str, str], float] = {}
    taken: dict[tuple[str, str], float] = {}
    first: dict[tuple[str, str], SearchCandidate] = {}
    for promise in promising:
        expected = [promise.idea.expected_us(index) for index in promise.lacks]
        whole = sum(expected)
        # before there is any plan, all promise the same
        saving_us = promise.saving_us if math.isfinite(promise.saving_us) else 1.0
        for index, each in zip(promise.lacks, expected, strict=True):
            candidate = table.candidates[index]
            key = candidate.target, candidate.key
            parts[key] = parts.get(key, 0.0) + saving_us * (each / whole if whole else 1 / len(expected))
            taken[key] = taken.get(key, 0.0) + each
            first[key] = min(first.get(key, candidate), candidate, key=lambda c: c.nodes)
    ranked = sorted(parts, key=lambda key: (-parts[key], -taken[key], first[key].nodes, key))
    most = 1 + sum(len(promise.lacks) for promise in promising) // (_AT_ONCE * max(1, len(promising)))
    return [first[key] for key in ranked[:most] if parts[key] >= max(least_us, parts[ranked[0]] / 2)]


def _measured_plan(table: _Table, search: RepeatedSearch) -> SearchResult | None:
    try:
        return search.run(np.where(np.isnan(table.known_us), INVALID, table.known_us))
    except NoCoverError:
        return None


def _judged(best: SearchResult, table: _Table, search: RepeatedSearch) -> SearchResult:
    """Set a plan's optimality gap from the lower bounds of the estimates."""
    proven = search.run(table.proven_us())
    bound_us = proven.total_us - proven.gap_us
    gap_us = max(0.0, best.total_us - bound_us)
    exact = proven.exact and gap_us * PICOSECONDS_PER_US < 1
    unmeasured = sum(
        1
        for cost, shape in zip(table.known_us.tolist(), table.prepared.shapes, strict=True)
        if shape is not None and math.isnan(cost)
    )
    return dataclasses.replace(best, exact=exact, gap_us=0.0 if exact else gap_us, method="lazy", unmeasured=unmeasured)
