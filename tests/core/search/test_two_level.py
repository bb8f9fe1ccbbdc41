"""The second level over mock latencies, in which kernels have a say in each other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from collage_core.contract.cost import INVALID
from collage_core.search import CostTable, SearchCandidate, SearchProblem, SearchTarget, search
from collage_core.search.moves import Choice, Moves
from collage_core.search.two_level import Method, TwoLevelLimits, trace_document, two_level

METHODS: tuple[Method, ...] = ("climb", "evolve")


def chain(length: int, names: str = "ab", longest: int = 3) -> SearchProblem:
    """A chain of nodes, and for each target every run of up to so many, and the whole."""
    runs = {(s, z) for z in range(1, longest + 1) for s in range(length - z + 1)} | {(0, length)}
    candidates = [
        SearchCandidate(nodes=((1 << size) - 1) << start, target=name, key=f"{start}+{size}")
        for start, size in sorted(runs)
        for name in names
    ]
    return SearchProblem.from_predecessors(
        [[node - 1] if node else [] for node in range(length)],
        targets=[SearchTarget(name=name, toolchain=name) for name in names],
        candidates=candidates,
    )


class Clock:
    """Latency of a plan: costs of its kernels, and a price where neighbours have different targets."""

    def __init__(self, problem: SearchProblem, seed: int, change_us: float = 6.0) -> None:
        rng = random.Random(seed)
        self.costs = {
            (c.target, c.key): 1.0 + sum(rng.uniform(2, 10) for _ in range(c.nodes.bit_count()))
            for c in problem.candidates
        }
        self._change_us = change_us
        self._first: float | None = None
        self.asked: list[Choice] = []
        self.calls = 0

    def latency_us(self, plan: Choice) -> float:
        changes = sum(one.target != other.target for one, other in itertools.pairwise(plan))
        return sum(self.costs[c.target, c.key] for c in plan) + changes * self._change_us

    def evaluate(self, plans: Sequence[Choice]) -> list[float]:
        self.calls += 1
        self.asked += plans
        if self._first is None:
            self._first = self.latency_us(plans[0])
        return [self.latency_us(plan) / self._first for plan in plans]


def starts_of(problem: SearchProblem, clock: Clock) -> list[Choice]:
    best = search(problem, CostTable(clock.costs)).candidates
    whole = (1 << problem.node_count) - 1
    return [best, *((c,) for c in problem.candidates if c.nodes == whole)]


def all_plans(problem: SearchProblem) -> list[Choice]:
    plans: list[Choice] = []

    def extend(plan: Choice, covered: int) -> None:
        if covered == problem.needs_kernel:
            plans.append(plan)
            return
        low = ~covered & (covered + 1)
        for c in problem.candidates:
            if c.nodes & low and not c.nodes & covered:
                extend((*plan, c), covered | c.nodes)

    extend((), 0)
    return plans


@pytest.mark.parametrize("method", METHODS)
def test_it_finds_what_kernels_alone_do_not_show(method: Method) -> None:
    improvable = better = optimal = 0
    for seed in range(8):
        problem = chain(6)
        clock = Clock(problem, seed)
        starts = starts_of(problem, clock)
        limits = TwoLevelLimits(evaluations=80, patience=20, method=method, seed=seed)

        found = two_level(Moves(problem), starts, clock, limits=limits)

        optimum_us, start_us = min(map(clock.latency_us, all_plans(problem))), min(map(clock.latency_us, starts))
        improvable += optimum_us < start_us - 1e-9
        better += clock.latency_us(found.best) < start_us - 1e-9
        optimal += clock.latency_us(found.best) <= optimum_us * 1.02
    assert improvable >= 3
    assert better == improvable
    assert optimal >= 7


@pytest.mark.parametrize("method", METHODS)
def test_it_is_never_worse_than_its_best_start(method: Method) -> None:
    for seed in range(20):
        problem = chain(5)
        clock = Clock(problem, seed, change_us=random.Random(seed).uniform(0, 20))
        starts = starts_of(problem, clock)

        found = two_level(Moves(problem), starts, clock, limits=TwoLevelLimits(evaluations=5, method=method))

        assert clock.latency_us(found.best) <= min(map(clock.latency_us, starts))
        assert found.ratio == min(each.ratio for each in found.trace)


@pytest.mark.parametrize("method", METHODS)
def test_what_it_asks_for_is_legal_new_and_within_the_limit(method: Method) -> None:
    problem = chain(6, names="abc")
    clock = Clock(problem, 3)
    starts = starts_of(problem, clock)
    limits = TwoLevelLimits(evaluations=30, batch=4, patience=100, method=method)

    found = two_level(Moves(problem), starts, clock, limits=limits)

    legal = {frozenset(plan) for plan in all_plans(problem)}
    keys = [frozenset(plan) for plan in clock.asked]
    assert set(keys) <= legal
    assert len(set(keys)) == len(keys) <= len(starts) + 30
    assert len(keys) > len(starts) + 20
    assert [frozenset(each.plan) for each in found.trace] == keys
    assert [each.best for each in found.trace] == list(itertools.accumulate((e.ratio for e in found.trace), min))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_answers_give_the_same_trace(method: Method) -> None:
    problem = chain(6)
    traces = []
    for _ in range(2):
        clock = Clock(problem, 4)
        limits = TwoLevelLimits(evaluations=20, method=method, seed=7)
        traces.append(two_level(Moves(problem), starts_of(problem, clock), clock, limits=limits).trace)

    assert traces[0] == traces[1]


class Broken(Clock):
    """Nothing but the starts can be run."""

    def evaluate(self, plans: Sequence[Choice]) -> list[float]:
        first = self.calls == 0
        ratios = super().evaluate(plans)
        return ratios if first else [INVALID] * len(plans)


@pytest.mark.parametrize("method", METHODS)
def test_plans_that_cannot_be_run_cost_nothing_but_time(method: Method) -> None:
    problem = chain(5)
    clock = Broken(problem, 1)
    starts = starts_of(problem, clock)

    found = two_level(Moves(problem), starts, clock, limits=TwoLevelLimits(evaluations=12, method=method))

    assert found.best in starts


def test_it_stops_when_told_and_after_nothing_better_for_long() -> None:
    problem = chain(6)
    stopped, patient = Clock(problem, 1), Clock(problem, 1)
    starts = starts_of(problem, stopped)

    two_level(Moves(problem), starts, stopped, stop=lambda: True)
    two_level(Moves(problem), starts, patient, limits=TwoLevelLimits(evaluations=500, patience=2))

    assert len(stopped.asked) == len(starts)
    assert len(patient.asked) < 100


def test_the_most_promising_neighbours_come_first() -> None:
    problem = chain(4)
    clock = Clock(problem, 2)
    start = tuple(c for c in problem.candidates if c.nodes.bit_count() == 1 and c.target == "a")

    two_level(
        Moves(problem),
        [start],
        clock,
        limits=TwoLevelLimits(evaluations=1, batch=1),
        predicted_us=lambda c: clock.costs[c.target, c.key],
    )

    def predicted(plan: Choice) -> float:
        return sum(clock.costs[c.target, c.key] for c in plan)

    neighbours = [plan for _, plan in Moves(problem).neighbours(start)]
    assert predicted(clock.asked[1]) == min(map(predicted, neighbours))


def test_neighbours_are_all_plans_one_give_merge_or_split_away() -> None:
    problem = chain(3, longest=2)
    start = tuple(c for c in problem.candidates if c.target == "a" and c.key in ("0+2", "2+1"))

    found = {(move, tuple((c.target, c.key) for c in plan)) for move, plan in Moves(problem).neighbours(start)}

    assert found == {
        ("give", (("b", "0+2"), ("a", "2+1"))),
        ("give", (("a", "0+2"), ("b", "2+1"))),
        ("merge", (("a", "0+3"),)),
        ("merge", (("b", "0+3"),)),
        ("split", (("a", "0+1"), ("a", "1+1"), ("a", "2+1"))),
        ("split", (("a", "0+1"), ("b", "1+1"), ("a", "2+1"))),
        ("split", (("b", "0+1"), ("a", "1+1"), ("a", "2+1"))),
    }


def test_a_border_is_shifted_between_kernels_of_the_same_targets() -> None:
    problem = chain(4, longest=3)
    start = tuple(c for c in problem.candidates if (c.target, c.key) in (("a", "0+2"), ("b", "2+2")))

    found = [tuple((c.target, c.key) for c in plan) for plan in Moves(problem).shifted(start)]

    assert sorted(found) == [
        (("a", "0+1"), ("b", "1+3")),
        (("a", "0+3"), ("b", "3+1")),
    ]


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
def test_neighbours_of_random_plans_are_legal(
    style: str, draw: Callable[..., Any], plans_of: Callable[..., Any]
) -> None:
    for seed in range(60):
        instance = draw(random.Random(seed), style)
        unmeasured = {c for c in instance.problem.candidates if (c.target, c.key) not in instance.costs_us}
        unusable = {c for c, cost in priced(instance) if cost == INVALID}
        plans = plans_of(instance)
        if not plans or unmeasured or unusable:
            continue
        legal = {frozenset((c.nodes, c.target) for c in plan) for plan in plans}
        moves = Moves(instance.problem)
        for plan in plans[:3]:
            arranged = moves.arranged(list(plan))
            assert arranged is not None
            for other in (*(other for _, other in moves.neighbours(arranged)), *moves.shifted(arranged)):
                assert frozenset((c.nodes, c.target) for c in other) in legal


def priced(instance: Any) -> list[tuple[SearchCandidate, float]]:
    return [(c, instance.costs_us.get((c.target, c.key), 0.0)) for c in instance.problem.candidates]


def test_targets_that_do_not_mix_are_not_mixed_by_a_move() -> None:
    targets = [SearchTarget(name="a", toolchain="a"), SearchTarget(name="b", toolchain="b", mixable=False)]
    candidates = [SearchCandidate(nodes=1 << n, target=t.name, key=f"{n}") for n in range(2) for t in targets]
    problem = SearchProblem.from_predecessors([[], [0]], targets=targets, candidates=candidates)
    start = tuple(c for c in candidates if c.target == "a")

    assert list(Moves(problem).neighbours(start)) == []


def test_the_trace_is_json_with_every_plan() -> None:
    problem = chain(4)
    clock = Broken(problem, 1)
    starts = starts_of(problem, clock)
    found = two_level(Moves(problem), starts, clock, limits=TwoLevelLimits(evaluations=4))

    document: Any = trace_document(found, lambda plan: [{"target": c.target} for c in plan])

    assert [each["number"] for each in document["evaluations"]] == list(range(len(found.trace)))
    assert document["evaluations"][0]["move"] == "start"
    assert document["evaluations"][-1]["ratio"] is None
    assert len(document["evaluations"][0]["kernels"]) == len(found.trace[0].plan)


def test_there_is_something_to_start_from() -> None:
    with pytest.raises(ValueError, match="start"):
        two_level(Moves(chain(2)), [], Clock(chain(2), 0))
