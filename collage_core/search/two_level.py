"""The second level: improve plans by end-to-end measurements rather than sums of kernel costs.

Kernel costs are only nearly additive: a kernel affects the caches, threads and layouts that the next one finds. So
the best plans of the first level, and every single toolchain's, are improved by moves, each judged end to end. This
is the graph level of B. Jeon et al., "Collage: Automated Integration of Deep Learning Backends" (arXiv 2111.00655),
which uses an evolutionary search; `climb` is the alternative, and the default. `benchmarks/two_level.py` compares
them.

Nothing is measured here: plans go to an `Evaluator`.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from collage_core.search.moves import Choice, Moves
from collage_core.search.problem import SearchCandidate

Method = Literal["climb", "evolve"]


class Evaluator(Protocol):
    """Times whole plans."""

    def evaluate(self, plans: Sequence[Choice]) -> Sequence[float]:
        """Measure the latency of each plan relative to the first start; `INVALID` if it cannot be run.

        Plans of one call are timed side by side. Repeated queries of a plan get the same answer.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevelLimits:
    """Limits of the search.

    Attributes:
        evaluations: Maximum number of plans timed, starts excepted.
        batch: Number of plans timed side by side.
        patience: Number of batches without a better plan after which the search ends.
        method: Hill climbing, or a population.
        population: Number of plans kept from one generation to the next, if there is a population.
        seed: Seed for random choices.
    """

    evaluations: int = 24
    batch: int = 4
    patience: int = 3
    method: Method = "climb"
    population: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.evaluations, self.batch, self.patience, self.population) < 1:
            raise ValueError(f"every limit is at least 1: {self}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One plan that was timed.

    Attributes:
        number: 0 for the first start, and so on.
        plan: The plan.
        move: Origin of the plan: `"start"`, `"give"`, `"merge"`, `"split"` or `"cross"`.
        parent: Number of the plan it was derived from; None for a start.
        ratio: Its latency over the first start's.
        best: The least ratio so far.
    """

    number: int
    plan: Choice
    move: str
    parent: int | None
    ratio: float
    best: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevelResult:
    """Result of a search.

    Attributes:
        best: The plan with the least ratio; a start if none was better.
        ratio: Its ratio. As the minimum of many noisy numbers it is biased: time the plan again before relying
            on it.
        trace: Every plan that was timed, in order.
    """

    best: Choice
    ratio: float
    trace: tuple[Evaluation, ...]


def two_level(
    moves: Moves,
    starts: Sequence[Choice],
    evaluator: Evaluator,
    *,
    limits: TwoLevelLimits | None = None,
    predicted_us: Callable[[SearchCandidate], float] = lambda candidate: 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> TwoLevelResult:
    """Improve plans by local moves; the outcome is a function of the arguments and the evaluator's answers.

    Args:
        moves: Generates neighbours.
        starts: Initial plans; the best is never replaced by a worse one. Ratios are relative to the first.
        evaluator: Times plans.
        limits: Stopping criteria.
        predicted_us: Predicted cost of a kernel; of many neighbours, those with the lowest sums are timed first.
        stop: Called before each batch.

    Raises:
        ValueError: If there is no start.
    """
    if not starts:
        raise ValueError("nothing to start from")
    search = _Search(moves, evaluator, limits or TwoLevelLimits(), predicted_us, stop)
    search.try_plans([("start", None, plan) for plan in starts])
    if search.limits.method == "climb":
        search.climb()
    else:
        search.evolve()
    best = min(search.trace, key=lambda each: (each.ratio, each.number))
    return TwoLevelResult(best=best.plan, ratio=best.ratio, trace=tuple(search.trace))


class _Search:
    """State shared by both methods: the plans timed so far."""

    def __init__(
        self,
        moves: Moves,
        evaluator: Evaluator,
        limits: TwoLevelLimits,
        predicted_us: Callable[[SearchCandidate], float],
        stop: Callable[[], bool],
    ) -> None:
        self._moves = moves
        self._evaluator = evaluator
        self.limits = limits
        self._predicted_us = predicted_us
        self._stop = stop
        self._rng = random.Random(limits.seed)
        self._left = limits.evaluations
        self._dull = 0  # batches in a row that brought nothing better
        self._known: dict[frozenset[SearchCandidate], Evaluation] = {}
        self._neighbours: dict[int, list[tuple[str, Choice]]] = {}  # by number of the plan, in the order to try
        self.trace: list[Evaluation] = []

    def try_plans(self, plans: Sequence[tuple[str, int | None, Choice]]) -> None:
        """Time the plans that were not timed yet."""
        fresh: dict[frozenset[SearchCandidate], tuple[str, int | None, Choice]] = {}
        for each in plans:
            if frozenset(each[2]) not in self._known:
                fresh.setdefault(frozenset(each[2]), each)
        before = self._best()
        ratios = self._evaluator.evaluate([plan for _, _, plan in fresh.values()]) if fresh else ()
        for (key, (move, parent, plan)), ratio in zip(fresh.items(), ratios, strict=True):
            best = min(self._best(), ratio)
            evaluation = Evaluation(number=len(self.trace), plan=plan, move=move, parent=parent, ratio=ratio, best=best)
            self._known[key] = evaluation
            self.trace.append(evaluation)
        if before < math.inf:
            self._left -= len(fresh)
        self._dull = 0 if self._best() < before else self._dull + 1

    def climb(self) -> None:
        """Move from the best plan to its best neighbour; at a local optimum, continue from the next best plan."""
        exhausted: set[int] = set()
        while self._goes_on():
            open_ = [each for each in self._ranked() if each.number not in exhausted]
            if not open_:
                return
            batch = self._untried(open_[0])[: min(self.limits.batch, self._left)]
            if not batch:
                exhausted.add(open_[0].number)
                continue
            self.try_plans([(move, open_[0].number, plan) for move, plan in batch])

    def evolve(self) -> None:
        """Evolve generations: cross two parents or mutate one by a move; select parents by tournament."""
        barren = 0
        while self._goes_on() and barren < 2 * self.limits.patience:
            parents = self._ranked()[: self.limits.population]
            children: list[tuple[str, int | None, Choice]] = []
            for _ in range(4 * self.limits.batch):  # some come to nothing, or were there before
                if len(children) == min(self.limits.batch, self._left):
                    break
                child = self._child(parents)
                if child is not None and all(frozenset(child[2]) != frozenset(plan) for _, _, plan in children):
                    children.append(child)
            barren = 0 if children else barren + 1
            if children:
                self.try_plans(children)

    def _child(self, parents: Sequence[Evaluation]) -> tuple[str, int | None, Choice] | None:
        one, other = (min(self._rng.choices(parents, k=2), key=lambda each: each.ratio) for _ in range(2))
        if one is not other and self._rng.random() < 0.5:
            crossed = self._moves.crossed(one.plan, other.plan, self._rng)
            if crossed is not None and frozenset(crossed) not in self._known:
                return "cross", one.number, crossed
        untried = self._untried(one)
        if not untried:
            return None
        # the cheapest by prediction are the likeliest, and none is out of reach
        move, plan = untried[min(int(self._rng.expovariate(0.5)), len(untried) - 1)]
        return move, one.number, plan

    def _goes_on(self) -> bool:
        return self._left > 0 and self._dull < self.limits.patience and not self._stop()

    def _best(self) -> float:
        return min((each.ratio for each in self.trace), default=math.inf)

    def _ranked(self) -> list[Evaluation]:
        return sorted((each for each in self.trace if each.ratio < math.inf), key=lambda e: (e.ratio, e.number))

    def _untried(self, origin: Evaluation) -> list[tuple[str, Choice]]:
        """List the neighbours that were not timed, most promising first."""
        if origin.number not in self._neighbours:
            found = [
                (sum(map(self._predicted_us, plan)), at, move, plan)
                for at, (move, plan) in enumerate(self._moves.neighbours(origin.plan))
            ]
            found.sort(key=lambda each: each[:2])
            self._neighbours[origin.number] = [(move, plan) for _, _, move, plan in found]
        return [each for each in self._neighbours[origin.number] if frozenset(each[1]) not in self._known]


def trace_document(
    result: TwoLevelResult, describe: Callable[[Choice], Sequence[Mapping[str, object]]]
) -> dict[str, object]:
    """Convert the trace to JSON.

    Args:
        result: The outcome of the search.
        describe: Returns a plan's kernels as JSON objects.
    """
    return {
        "schema_version": 1,
        "ratio": _finite(result.ratio),
        "evaluations": [
            {
                "number": each.number,
                "move": each.move,
                "parent": each.parent,
                "ratio": _finite(each.ratio),
                "best": _finite(each.best),
                "kernels": [dict(kernel) for kernel in describe(each.plan)],
            }
            for each in result.trace
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
