"""Find the cheapest plan whose error, known only by running the plan, keeps to a bound.

What is believed of errors is learnt from each plan that is run (`ErrorBelief`). Each draw of the belief makes errors
additive, so `bounded_search` finds the plan that is the best if the draw is right (W. R. Thompson, "On the Likelihood
that One Unknown Probability Exceeds Another", Biometrika 25, 1933). Of these plans, and of those that differ from good
ones by one kernel, the one is run whose saving is the largest, weighted by its chance to keep to the bound (J. R.
Gardner and others, "Bayesian Optimization with Inequality Constraints", ICML 2014); the weight is a power of the
chance, which is more cautious than theirs.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from collage_core.contract.cost import INVALID, UNMEASURED, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search.bounded import bounded_search
from collage_core.search.error_beliefs import DRAWS, POWER, ErrorBelief
from collage_core.search.exact import ExactSearch, SearchLimits
from collage_core.search.normal import Vector
from collage_core.search.order import execution_order
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem

Run: TypeAlias = Callable[[tuple[SearchCandidate, ...]], float]
"""Runs a plan, in execution order, and returns its error."""

_Chosen: TypeAlias = tuple[int, ...]
"""A plan by its candidates' positions, in rising order."""

_LOOKS = 4
"""Draws that are searched after each run."""
_WITHIN, _MOST_SEARCHES = 0.002, 40
"""Limits of these searches."""
_MOST_FIRST = 400
"""Exact searches for the first plan."""
_NEIGHBOURHOODS = 6
"""Plans of which neighbours are looked at after each run; each is one of so many best."""
_BEST, _KEPT = 3, 500
"""How many plans are among the best, and how many are kept until the next run."""
_CAUTION = 1.5
"""Power of the chance by which a saving is weighted. With 1, problems of 100 nodes spend most runs on plans that save
much and are believed to keep to the bound in 5 % of draws, and end 3 to 4 % dearer; 2 missed more of small problems.
"""
_ALONE_US = 1e6
"""Cost of a guess at the bound, where the plan with the least error is looked for."""
_LEAST_US = 1e-9
"""What is saved at least, for sums that differ by rounding are equal."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LearntRun:
    """A plan that was run.

    Attributes:
        candidates: Its candidates, in execution order.
        total_us: Its cost, with every target's dispatch and every copy between devices.
        error: What the run returned.
    """

    candidates: tuple[SearchCandidate, ...]
    total_us: float
    error: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LearntResult:
    """The cheapest plan that was found to keep to the bound.

    Attributes:
        candidates: The chosen candidates, in execution order.
        total_us: Their cost, with every target's dispatch and every copy between devices.
        error: Of the plan: as run or known, or 0 if all of its guesses are.
        runs: What was run, in order.
        searches: Calls of `bounded_search`.
    """

    candidates: tuple[SearchCandidate, ...]
    total_us: float
    error: float
    runs: tuple[LearntRun, ...]
    searches: int


def learnt_bound_search(
    problem: SearchProblem | Prepared,
    costs_us: Sequence[Cost | Unmeasured],
    errors: Sequence[float],
    bound: float,
    run: Run,
    *,
    known: Iterable[tuple[Sequence[SearchCandidate], float]] = (),
    most_runs: int = 24,
    worth: float = 0.0015,
    seed: int = 0,
    limits: SearchLimits | None = None,
) -> LearntResult | None:
    """Find the cheapest plan whose error, as run, is at most a bound.

    The first plan that is run is the best if the guesses are right and add in squares. There are two calls of
    `bounded_search` at the start and four before each later run; the latter are cut off at a gap of 0.2 % or after 40
    exact searches.

    Args:
        problem: The problem, prepared or not.
        costs_us: Cost of each candidate, in the order of the problem's; what is unmeasured is not used.
        errors: First guess of each candidate's error, finite and at least 0. A plan whose guesses are all 0 is taken
            to have no error, and is never run.
        bound: Largest error of a plan, finite and at least 0.
        run: Runs a plan and returns its error; not called twice for a plan. NaN is beyond every bound.
        known: Plans whose error is known without a run.
        most_runs: Runs after which the best plan so far is returned.
        worth: Share of the cost that a run has to save, weighted by a power of its chance, to be worth its time.
        seed: Of the draws; the result is the same for the same seed.
        limits: Limits of each exact search.

    Returns:
        The plan; None if no plan was found to keep to the bound.

    Raises:
        NoCoverError: If no plan covers every node, whatever its errors.
        ValueError: If a guess or the bound is NaN, infinite or negative, or a known plan is none of the problem's.
    """
    if not all(0 <= error < math.inf for error in (*errors, bound)):
        raise ValueError("errors and their bound are finite numbers >= 0")
    if len(costs_us) != len(errors):
        raise ValueError(f"{len(costs_us)} candidates have {len(errors)} errors")
    return _Learning(prepare(problem), costs_us, errors, bound, run, seed, limits).found(known, most_runs, worth)


class _Learning:
    """A search with the plans that it may run."""

    def __init__(
        self,
        prepared: Prepared,
        costs_us: Sequence[Cost | Unmeasured],
        errors: Sequence[float],
        bound: float,
        run: Run,
        seed: int,
        limits: SearchLimits | None,
    ) -> None:
        self._prepared, self._costs_us, self._bound, self._run, self._limits = prepared, costs_us, bound, run, limits
        self._candidates = prepared.problem.candidates
        self._at: dict[SearchCandidate, int] = {}
        for index, candidate in enumerate(self._candidates):
            self._at.setdefault(candidate, index)
        targets = {target.name: target for target in prepared.problem.targets}
        self._mixing = {(a, b) for a in targets for b in targets if targets[a].mixes_with(targets[b])}
        self._prices_us: dict[int, float] = {}
        self._alternatives: dict[int, list[int]] = {}
        for index in self._at.values():
            cost_us = costs_us[index]
            if not isinstance(cost_us, Unmeasured) and cost_us != INVALID:
                self._prices_us[index] = cost_us + targets[self._candidates[index].target].dispatch_us
                self._alternatives.setdefault(prepared.roles[index], []).append(index)
        self._guesses = np.asarray(errors, dtype=np.float64) / (bound or 1.0)
        self._belief = ErrorBelief(self._guesses, [candidate.target for candidate in self._candidates], seed=seed)
        self._pool: dict[_Chosen, float] = {}  # cost of each plan that might be run
        self._expanded: set[_Chosen] = set()
        self._tried: dict[_Chosen, float] = {}
        self._runs: list[LearntRun] = []
        self._best: tuple[_Chosen, float] | None = None
        self._searches = 0
        self._looked = 0

    def found(
        self, known: Iterable[tuple[Sequence[SearchCandidate], float]], most_runs: int, worth: float
    ) -> LearntResult | None:
        """Search; see `learnt_bound_search`."""
        for candidates, error in known:
            self._note(*self._known(candidates), error)
        exact = self._searched((self._guesses > 0).astype(np.float64), 0.0)
        if exact is not None and exact[0] not in self._tried:
            self._note(*exact, 0.0)
        if self._best is None:
            self._offer(self._most_exact())
        if self._bound > 0 and most_runs > 0:
            self._learn(most_runs, worth)
        if self._best is None:
            return None
        chosen, total_us = self._best
        return LearntResult(
            candidates=self._in_order(chosen),
            total_us=total_us,
            error=self._tried[chosen],
            runs=tuple(self._runs),
            searches=self._searches,
        )

    def _learn(self, most_runs: int, worth: float) -> None:
        first = self._searched(self._guesses**POWER, 1.0, quickly=False)
        if first is not None and first[0] not in self._tried and first[1] < self._top_us():
            self._try(*first)
        while len(self._runs) < most_runs:
            self._look()
            for _ in range(_NEIGHBOURHOODS):
                around = [(chosen, self._pool[chosen]) for chosen, _ in self._ranked()[:_BEST]]
                if self._best is not None:
                    around.insert(0, self._best)
                if (left := next((each for each in around if each[0] not in self._expanded), None)) is None:
                    break
                self._expand(*left)
            ranked = self._ranked()
            self._pool = {chosen: self._pool[chosen] for chosen, _ in ranked[:_KEPT]}
            if not ranked or (self._best is not None and ranked[0][1] < worth * self._best[1]):
                break
            chosen = ranked[0][0]
            self._try(chosen, self._pool[chosen])

    def _top_us(self) -> float:
        """Return what a plan must undercut; with nothing within the bound yet, what makes every plan a saving."""
        return 2 * max(self._pool.values(), default=math.inf) if self._best is None else self._best[1] - _LEAST_US

    def _ranked(self) -> list[tuple[_Chosen, float]]:
        """Return the plans that might be run, and the weighted saving of each; best first."""
        top_us = self._top_us()
        plans = [chosen for chosen, cost_us in self._pool.items() if cost_us < top_us and chosen not in self._tried]
        if not plans:
            return []
        saved_us = top_us - np.array([self._pool[chosen] for chosen in plans])
        saved_us *= self._belief.chances(np.array([self._row(chosen) for chosen in plans])) ** _CAUTION
        return [(plans[at], float(saved_us[at])) for at in np.argsort(-saved_us, kind="stable")]

    def _look(self) -> None:
        """Add the plans that are best if a few draws of the belief are right."""
        draws = [(self._looked + step) % DRAWS for step in range(_LOOKS)]
        self._looked += _LOOKS
        powers, power = self._belief.powers()
        for draw, allowed in zip(draws, self._belief.allowances(draws), strict=True):
            self._offer(self._searched(powers[draw], float(allowed ** power[draw])))

    def _expand(self, chosen: _Chosen, cost_us: float) -> None:
        """Add the plans that differ from one in the target or the version of one kernel."""
        self._expanded.add(chosen)
        top_us = self._top_us()
        targets = collections.Counter(self._candidates[index].target for index in chosen)
        for index in chosen:
            own = self._candidates[index].target
            others = [name for name, count in targets.items() if count > (name == own)]
            for other in self._alternatives[self._prepared.roles[index]]:
                after_us = cost_us - self._prices_us[index] + self._prices_us[other]
                target = self._candidates[other].target
                if other != index and after_us < top_us and all((target, name) in self._mixing for name in others):
                    self._offer((tuple(sorted({*chosen, other} - {index})), after_us))

    def _try(self, chosen: _Chosen, cost_us: float) -> None:
        candidates = self._in_order(chosen)
        error = self._run(candidates)
        self._runs.append(LearntRun(candidates=candidates, total_us=cost_us, error=error))
        self._note(chosen, cost_us, error)

    def _note(self, chosen: _Chosen, cost_us: float, error: float) -> None:
        """Record a plan whose error is known, and learn from it."""
        self._tried[chosen] = error
        if self._bound > 0:
            self._belief.learn(self._row(chosen), error / self._bound)
        if error <= self._bound and cost_us < (math.inf if self._best is None else self._best[1]):
            self._best = chosen, cost_us

    def _offer(self, found: tuple[_Chosen, float] | None) -> None:
        if found is not None:
            self._pool.setdefault(*found)

    def _row(self, chosen: _Chosen) -> Vector:
        row = np.zeros(len(self._candidates))
        row[list(chosen)] = 1
        return row

    def _in_order(self, chosen: _Chosen) -> tuple[SearchCandidate, ...]:
        shapes = [shape for index in chosen if (shape := self._prepared.shapes[index]) is not None]
        return tuple(self._candidates[chosen[at]] for at in execution_order(shapes))

    def _searched(self, errors: Vector, bound: float, *, quickly: bool = True) -> tuple[_Chosen, float] | None:
        """Return the cheapest plan whose errors add up to at most a bound, and its cost; None if there is none."""
        self._searches += 1
        usable = [UNMEASURED if error > bound else cost for cost, error in zip(self._costs_us, errors, strict=True)]
        added = np.minimum(errors, bound).tolist()  # of what is left out they do not matter
        within, most = (_WITHIN, _MOST_SEARCHES) if quickly else (0.0, _MOST_FIRST)
        try:
            found = bounded_search(
                self._prepared, usable, added, bound, within=within, most_searches=most, limits=self._limits
            )
        except NoCoverError:
            return None
        return None if found is None else (self._chosen(found.candidates), found.total_us)

    def _most_exact(self) -> tuple[_Chosen, float]:
        """Return the plan with the least guess, and its cost.

        Raises:
            NoCoverError: If no plan covers every node.
        """
        alone_us = [
            _ALONE_US * guess**POWER if index in self._prices_us else INVALID
            for index, guess in enumerate(self._guesses.tolist())
        ]
        found = ExactSearch(self._prepared, alone_us, limits=self._limits).run()
        return self._priced(self._chosen(found.candidates))

    def _known(self, candidates: Sequence[SearchCandidate]) -> tuple[_Chosen, float]:
        """Return a given plan by positions, and its cost; infinite if that of a kernel is not known.

        Raises:
            ValueError: If it is no plan of the problem.
        """
        if not set(candidates) <= self._at.keys():
            raise ValueError("a known plan has a candidate that is none of the problem's")
        chosen = self._chosen(candidates)
        if not set(chosen) <= self._prices_us.keys():
            return chosen, math.inf
        try:
            found = self._priced(chosen)
        except NoCoverError:
            found = (), math.inf
        if found[0] != chosen:
            raise ValueError("a known plan does not cover every node once, or cannot run")
        return found

    def _priced(self, chosen: _Chosen) -> tuple[_Chosen, float]:
        """Return the cheapest plan of some candidates, and its cost.

        Raises:
            NoCoverError: If no plan of them covers every node.
        """
        only = [cost if index in chosen else UNMEASURED for index, cost in enumerate(self._costs_us)]
        found = ExactSearch(self._prepared, only, limits=self._limits).run()
        return self._chosen(found.candidates), found.total_us

    def _chosen(self, candidates: Sequence[SearchCandidate]) -> _Chosen:
        return tuple(sorted(self._at[candidate] for candidate in candidates))
