"""Find the cheapest plan whose errors keep to a bound.

Each candidate has an error beside its cost, and those of a plan add up. That is a shortest path with one resource. Its
Lagrangian relaxation charges a price for error, so each price is one exact search, and the best price gives a bound on
what any plan within the limit costs (G. Y. Handler and I. Zang, "A Dual Algorithm for the Constrained Shortest Path
Problem", Networks 10, 1980). The plans at the best price seldom use the limit up; branch and bound closes the gap: a
kernel that the plan beyond the limit has, and the one within it has not, is required or left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from collage_core.contract.cost import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search.exact import SearchLimits, SearchResult
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem
from collage_core.search.repeated import RepeatedSearch

_MOST_SEARCHES = 400
_NEAR = 1e-9
"""Relative difference below which two costs are one: searches count in picoseconds."""
_ALONE_US, _ASIDE = 1e9, 1e-6
"""What the largest error costs where errors are to decide alone, and what costs count then, to break ties."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundedResult:
    """The cheapest plan within a bound, and what is proven of it.

    Attributes:
        candidates: The chosen candidates, in execution order.
        total_us: Their cost, with every target's dispatch and every copy between devices.
        error: Sum of their errors.
        lower_us: No plan within the bound costs less.
        searches: Exact searches that were run.
    """

    candidates: tuple[SearchCandidate, ...]
    total_us: float
    error: float
    lower_us: float
    searches: int

    @property
    def is_exact(self) -> bool:
        """Whether no plan within the bound is cheaper."""
        return self.total_us <= self.lower_us * (1 + _NEAR)


def bounded_search(
    problem: SearchProblem | Prepared,
    costs_us: Sequence[Cost | Unmeasured],
    errors: Sequence[float],
    bound: float,
    *,
    within: float = 0.0,
    most_searches: int = _MOST_SEARCHES,
    limits: SearchLimits | None = None,
) -> BoundedResult | None:
    """Find the cheapest plan whose errors add up to at most a bound.

    Args:
        problem: The problem, prepared or not.
        costs_us: Cost of each candidate, in the order of the problem's; what is unmeasured is not used.
        errors: Error of each candidate, finite and at least 0.
        bound: Largest sum of errors, at least 0.
        within: Share of the cost by which the plan may miss the optimum.
        most_searches: Exact searches after which the best plan so far is returned.
        limits: Limits of each search.

    Returns:
        The plan; None if every plan is beyond the bound.

    Raises:
        NoCoverError: If no plan covers every node, whatever its errors.
        ValueError: If an error or the bound is NaN, infinite or negative, or a cost is NaN or negative.
    """
    if not all(0 <= error < math.inf for error in (*errors, bound)):
        raise ValueError("errors and their bound are finite numbers >= 0")
    if len(costs_us) != len(errors):
        raise ValueError(f"{len(costs_us)} candidates have {len(errors)} errors")
    return _Branching(prepare(problem), costs_us, errors, bound, limits).run(within, most_searches)


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """A plan by its candidates' positions."""

    chosen: tuple[int, ...]
    result: SearchResult
    cost_us: float
    error: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Dual:
    """The relaxation of a subproblem.

    Attributes:
        lower_us: No plan of it within the bound costs less.
        inside: The plan within the bound at the best price.
        outside: The plan beyond it; None if the first is the cheapest of all.
    """

    lower_us: float
    inside: _Plan
    outside: _Plan | None


class _Branching:
    """Branch and bound over which candidates may be used."""

    def __init__(
        self,
        prepared: Prepared,
        costs_us: Sequence[Cost | Unmeasured],
        errors: Sequence[float],
        bound: float,
        limits: SearchLimits | None,
    ) -> None:
        self._prepared = prepared
        self._costs_us = costs_us
        self._errors = errors
        self._bound = bound
        usable = [not isinstance(cost, Unmeasured) and cost != INVALID for cost in costs_us]
        self._search = RepeatedSearch(prepared, usable, limits)
        self._candidates = prepared.problem.candidates
        self._at: dict[SearchCandidate, int] = {}
        for index, candidate in enumerate(self._candidates):
            self._at.setdefault(candidate, index)
        self._dispatch_us = {target.name: target.dispatch_us for target in prepared.problem.targets}
        self._searches = 0

    def run(self, within: float, most_searches: int) -> BoundedResult | None:
        """Search until the plan is proven near enough, or enough was searched; see `bounded_search`."""
        if (dual := self._dual(frozenset())) is None:
            return None
        best, lower_us = dual.inside, dual.lower_us
        numbers = itertools.count()  # of equal bounds the first comes first
        waiting = [(lower_us, next(numbers), frozenset[int](), dual)]
        while waiting:
            lower_us, _, forbidden, dual = heapq.heappop(waiting)
            if best.cost_us <= lower_us * (1 + max(within, _NEAR)) or self._searches >= most_searches:
                break
            for left_out in self._branches(forbidden, dual):
                with contextlib.suppress(NoCoverError):
                    if (part := self._dual(left_out)) is not None:
                        best = min(best, part.inside, key=lambda plan: (plan.cost_us, plan.error))
                        heapq.heappush(waiting, (max(part.lower_us, lower_us), next(numbers), left_out, part))
        else:
            lower_us = best.cost_us  # nothing is left to look at
        return BoundedResult(
            candidates=best.result.candidates,
            total_us=best.cost_us,
            error=best.error,
            lower_us=min(lower_us, best.cost_us),
            searches=self._searches,
        )

    def _branches(self, forbidden: frozenset[int], dual: _Dual) -> list[frozenset[int]]:
        """Return two subproblems that share no plan, without a candidate and with it; none if there is no gap."""
        if dual.outside is None:
            return []
        inside = set(dual.inside.chosen)
        at = max((index for index in dual.outside.chosen if index not in inside), key=lambda i: (self._errors[i], -i))
        kernels = self._kernels(at)
        rivals = {index for index in range(len(self._candidates)) if index != at and self._kernels(index) & kernels}
        return [forbidden | {at}, forbidden | rivals]

    def _kernels(self, index: int) -> int:
        shape = self._prepared.shapes[index]
        return 0 if shape is None else shape.kernels

    def _dual(self, forbidden: frozenset[int]) -> _Dual | None:
        """Find the best price of error; None if no plan is within the bound.

        Raises:
            NoCoverError: If no plan covers every node.
        """
        outside = self._cheapest(0.0, forbidden)
        if outside.error <= self._bound:
            return _Dual(self._proven(outside, 0.0), outside, None)
        inside = self._most_exact(forbidden)
        if inside.error > self._bound:
            return None
        lower_us = -math.inf
        while True:
            price = max(0.0, inside.cost_us - outside.cost_us) / (outside.error - inside.error)
            found = self._cheapest(price, forbidden)
            lower_us = max(lower_us, self._proven(found, price))
            on_line_us = inside.cost_us + price * inside.error
            if found.cost_us + price * found.error >= on_line_us * (1 - _NEAR):
                return _Dual(lower_us, inside, outside)
            if found.error <= self._bound:
                inside = found
            else:
                outside = found

    def _proven(self, plan: _Plan, price: float) -> float:
        """Return what any plan within the bound costs at least, from the cheapest at a price of error."""
        return plan.cost_us + price * (plan.error - self._bound) - plan.result.gap_us

    def _cheapest(self, price: float, forbidden: frozenset[int]) -> _Plan:
        """Return the cheapest plan where error has a price, in microseconds."""
        return self._searched(forbidden, lambda index, cost_us: cost_us + price * self._errors[index])

    def _most_exact(self, forbidden: frozenset[int]) -> _Plan:
        """Return the plan with the least error, and of these a cheap one."""
        per_error = _ALONE_US / (max(self._errors) or 1.0)
        return self._searched(forbidden, lambda index, cost_us: per_error * self._errors[index] + cost_us * _ASIDE)

    def _searched(self, forbidden: frozenset[int], priced: Callable[[int, float], float]) -> _Plan:
        """Return the best plan without some candidates where the others have other prices."""
        costs_us = [
            INVALID if isinstance(cost, Unmeasured) or cost == INVALID or index in forbidden else priced(index, cost)
            for index, cost in enumerate(self._costs_us)
        ]
        self._searches += 1
        result = self._search.run(np.array(costs_us, dtype=np.float64))
        chosen = tuple(self._at[candidate] for candidate in result.candidates)
        kernels_us = [cost for index in chosen if not isinstance(cost := self._costs_us[index], Unmeasured)]
        besides_us = [self._dispatch_us[candidate.target] for candidate in result.candidates]
        cost_us = math.fsum((*kernels_us, *besides_us, result.copies_us))
        return _Plan(chosen, result, cost_us, math.fsum(self._errors[index] for index in chosen))
