"""The exact search against brute force over all partitionings."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract.cost import INVALID, UNMEASURED
from collage_core.errors import NoCoverError, SearchError
from collage_core.search import (
    CostTable,
    ExactSearch,
    SearchCandidate,
    SearchLimits,
    SearchProblem,
    SearchTarget,
    search,
)
from collage_core.search.constraints import advance

A = SearchTarget(name="a", toolchain="a")
B = SearchTarget(name="b", toolchain="b")
repeatable = settings(deadline=None, derandomize=True)


def found_by(instance: Any, **options: Any) -> tuple[SearchCandidate, ...] | None:
    """The plan found, in the order of its lowest nodes; None if there is none."""
    try:
        result = ExactSearch(instance.problem, instance.costs, **options).run()
    except NoCoverError:
        return None
    needs = instance.problem.needs_kernel
    return tuple(sorted(result.candidates, key=lambda c: c.nodes & needs & -(c.nodes & needs)))


def problem_of(
    predecessors: list[list[int]],
    choices: Sequence[tuple[list[int], SearchTarget, float | None]],
    host: int = 0,
) -> tuple[SearchProblem, CostTable]:
    """A problem from (nodes, target, cost or None for unmeasured)."""
    candidates = [
        SearchCandidate(nodes=sum(1 << n for n in nodes), target=target.name, key=f"k{at}")
        for at, (nodes, target, _) in enumerate(choices)
    ]
    targets = {target.name: target for _, target, _ in choices}.values()
    costs = {(target.name, f"k{at}"): cost for at, (_, target, cost) in enumerate(choices) if cost is not None}
    return (
        SearchProblem.from_predecessors(predecessors, targets=targets, candidates=candidates, host=host),
        CostTable(costs),
    )


BLOCK = 200
"""Seeds of a test."""
SOON, LATER = range(3), range(3, 8)
"""Blocks of the default run, and of the slow one."""


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
@pytest.mark.parametrize("block", [*SOON, *(pytest.param(block, marks=pytest.mark.slow) for block in LATER)])
def test_the_plan_is_the_canonical_optimum(
    style: str, block: int, draw: Callable[..., Any], best_plan: Callable[..., Any]
) -> None:
    pruned = SearchLimits(plain_states=0, widths=(1, 8))
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        instance = draw(random.Random(seed), style)
        wanted = best_plan(instance)
        assert found_by(instance) == wanted, (style, seed)
        assert found_by(instance, limits=pruned) == wanted, (style, seed, "pruned")


@repeatable
@given(seed=st.integers(min_value=10_000), style=st.sampled_from(["uniform", "adversarial"]))
def test_the_plan_is_the_canonical_optimum_for_any_seed(
    draw: Callable[..., Any], best_plan: Callable[..., Any], seed: int, style: str
) -> None:
    instance = draw(random.Random(seed), style)
    assert found_by(instance) == best_plan(instance)


@repeatable
@given(seed=st.integers(min_value=0), style=st.sampled_from(["uniform", "adversarial"]))
def test_the_plan_does_not_depend_on_the_order_of_candidates(draw: Callable[..., Any], seed: int, style: str) -> None:
    rng = random.Random(seed)
    instance = draw(rng, style)
    plan = found_by(instance)
    candidates = list(instance.problem.candidates)
    for _ in range(3):
        rng.shuffle(candidates)
        assert found_by(instance.with_candidates(candidates)) == plan


def test_constraints_between_kernels_with_several_exits(design_instance: Any) -> None:
    result = search(design_instance.problem, design_instance.costs)

    assert result.total_us == 5.0
    assert result.exact
    assert result.gap_us == 0.0


MUTANTS: dict[str, dict[str, Any]] = {
    "covered-set-only state": {"key": lambda covered, pairs, places: covered},
    "cycle check left out": {"step": lambda pairs, shape, uncovered: ()},
    "host nodes at the end not watched": {
        "step": lambda pairs, shape, uncovered: advance(
            pairs, dataclasses.replace(shape, touched=shape.kernels), uncovered
        )
    },
    "no pair for kernels with several exits": {
        "step": lambda pairs, shape, uncovered: advance(pairs, dataclasses.replace(shape, tangled=False), uncovered)
    },
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_by_the_oracle(name: str, draw: Callable[..., Any], best_plan: Callable[..., Any]) -> None:
    def deviates(seed: int) -> bool:
        instance = draw(random.Random(seed), "adversarial")
        try:
            return bool(found_by(instance, **MUTANTS[name]) != best_plan(instance))
        except SearchError:
            return True  # a plan with a cycle has no execution order

    assert any(map(deviates, range(len(SOON) * BLOCK)))  # the seeds that the comparison above always takes


def test_the_naive_state_finds_22_where_the_optimum_is_5(design_instance: Any) -> None:
    naive = ExactSearch(design_instance.problem, design_instance.costs, key=lambda covered, pairs, places: covered)

    assert naive.run().total_us == 22.0


def test_kernels_come_in_an_order_in_which_they_can_run() -> None:
    problem, costs = problem_of([[], [], [], [1]], [([0, 3], A, 1.0), ([1, 2], A, 1.0)])

    assert [c.nodes for c in search(problem, costs).candidates] == [0b0110, 0b1001]


def test_a_chain_that_each_toolchain_half_likes_is_split() -> None:
    both = [([0], A, 1.0), ([1], A, 10.0), ([0, 1], A, 11.0)]
    both += [([0], B, 10.0), ([1], B, 1.0), ([0, 1], B, 11.0)]
    problem, costs = problem_of([[], [0]], both)

    result = search(problem, costs)

    assert result.total_us == 2.0
    assert [candidate.target for candidate in result.candidates] == ["a", "b"]


def test_dispatch_is_paid_per_kernel() -> None:
    slow = SearchTarget(name="a", toolchain="a", dispatch_us=5.0)
    problem, costs = problem_of([[], [0]], [([0], slow, 1.0), ([1], slow, 1.0), ([0, 1], slow, 6.0)])

    result = search(problem, costs)

    assert [candidate.nodes for candidate in result.candidates] == [0b11]
    assert result.costs_us == (6.0,)
    assert result.total_us == 11.0


def test_ties_prefer_fewer_kernels_then_fewer_toolchains_then_names() -> None:
    problem, costs = problem_of([[], [0]], [([0], A, 1.0), ([1], A, 1.0), ([0, 1], B, 2.0)])
    assert [c.target for c in search(problem, costs).candidates] == ["b"]

    problem, costs = problem_of([[], [0]], [([0], A, 1.0), ([0], B, 1.0), ([1], B, 1.0)])
    assert [c.target for c in search(problem, costs).candidates] == ["b", "b"]

    problem, costs = problem_of([[]], [([0], B, 1.0), ([0], A, 1.0)])
    assert [c.target for c in search(problem, costs).candidates] == ["a"]


def test_a_declared_rank_goes_before_names() -> None:
    candidates = [
        SearchCandidate(nodes=1, target="a", key="k", rank=1),
        SearchCandidate(nodes=1, target="b", key="k", rank=0),
    ]
    problem = SearchProblem.from_predecessors([[]], targets=[A, B], candidates=candidates)

    result = search(problem, CostTable({("a", "k"): 1.0, ("b", "k"): 1.0}))

    assert [candidate.target for candidate in result.candidates] == ["b"]


def test_sums_that_differ_only_by_rounding_are_ties() -> None:
    choices = [([0], A, 0.1), ([1], A, 0.2), ([0, 1], B, 0.3)]  # 0.1 + 0.2 > 0.3 in binary
    problem, costs = problem_of([[], [0]], choices)

    assert [c.nodes for c in search(problem, costs).candidates] == [0b11]


def test_a_target_that_does_not_mix_takes_all_or_nothing() -> None:
    spin = SearchTarget(name="a(spin=true)", toolchain="a", mixable=False)
    choices = [([0], A, 10.0), ([1], A, 10.0), ([0], spin, 1.0)]
    problem, costs = problem_of([[], [0]], choices)
    assert search(problem, costs).targets == {"a"}

    problem, costs = problem_of([[], [0]], [*choices, ([0, 1], spin, 15.0)])
    assert search(problem, costs).targets == {"a(spin=true)"}


def test_targets_that_exclude_each_other_never_meet() -> None:
    one = SearchTarget(name="c", toolchain="c", excludes=frozenset({"b"}))
    problem, costs = problem_of([[], [0]], [([0], B, 1.0), ([1], B, 9.0), ([1], one, 1.0), ([0], one, 8.0)])

    result = search(problem, costs)

    assert (result.targets, result.total_us) == (frozenset({"c"}), 9.0)


def test_host_nodes_are_free_and_may_be_shared() -> None:
    problem, costs = problem_of([[], [0], [1], [1]], [([0], A, 1.0), ([1, 2], A, 1.0), ([1, 3], A, 1.0)], host=0b0010)

    assert search(problem, costs).total_us == 3.0


def test_a_graph_of_host_nodes_needs_nothing() -> None:
    problem, costs = problem_of([[], [0]], [([0, 1], A, 1.0)], host=0b11)

    assert search(problem, costs).candidates == ()


def test_an_unmeasured_candidate_makes_the_result_inexact_by_at_most_the_gap() -> None:
    problem, costs = problem_of([[], [0]], [([0], A, 3.0), ([1], A, 4.0), ([0, 1], A, None)])

    result = search(problem, costs)

    assert (result.total_us, result.exact, result.unmeasured) == (7.0, False, 1)
    assert result.gap_us == 7.0


def test_an_uncovered_node_is_named() -> None:
    problem, costs = problem_of([[], [0], [1]], [([0], A, 1.0), ([1], A, INVALID), ([2], A, None)])

    with pytest.raises(NoCoverError, match=r"no toolchain runs node\(s\) 1, 2") as caught:
        search(problem, costs)

    assert caught.value.nodes == (1, 2)
    assert "Erf" in str(caught.value.explained(("a has no rule for Erf",)))


def test_candidates_that_do_not_fit_together_are_told_apart_from_missing_ones() -> None:
    problem, costs = problem_of([[], [0], [1]], [([0, 1], A, 1.0), ([1, 2], A, 1.0)])

    with pytest.raises(NoCoverError, match="fits together") as caught:
        search(problem, costs)

    assert caught.value.stuck
    assert caught.value.nodes == (2,)


def test_a_restriction_gives_the_best_plan_of_one_target() -> None:
    problem, costs = problem_of([[], [0]], [([0], A, 1.0), ([0], B, 2.0), ([1], B, 2.0)])

    result = search(problem, costs, allow=lambda candidate: candidate.target == "b")

    assert (result.targets, result.total_us, result.exact) == (frozenset({"b"}), 4.0, True)


def test_a_candidate_that_is_not_convex_is_refused() -> None:
    problem, costs = problem_of([[], [0], [1]], [([0, 2], A, 1.0), ([1], A, 1.0)])

    with pytest.raises(SearchError, match=r"nodes \[0, 2\] is not convex: nodes \[1\]"):
        search(problem, costs)


class Wrong:
    """A cost source that answers nonsense."""

    def __init__(self, answer: float) -> None:
        self.answer = answer

    def cost(self, candidate: SearchCandidate) -> float:
        return self.answer


@pytest.mark.parametrize("answer", [float("nan"), -1.0])
def test_a_cost_that_is_none_is_an_error(answer: float) -> None:
    problem, _ = problem_of([[]], [([0], A, 1.0)])

    with pytest.raises(ValueError, match="'k0'"):
        search(problem, Wrong(answer))


def branches(count: int, length: int) -> tuple[SearchProblem, CostTable]:
    """Parallel chains, and candidates that join neighbours: many states per layer."""
    rng = random.Random(7)
    predecessors: list[list[int]] = [[]]
    for branch in range(count):
        predecessors += [[0 if step == 0 else branch * length + step] for step in range(length)]
    choices: list[tuple[list[int], SearchTarget, float | None]] = []
    for node in range(len(predecessors)):
        choices.append(([node], rng.choice([A, B]), float(rng.randint(5, 9))))
        if node + length < len(predecessors) and node:
            choices.append(([node, node + length], A, float(rng.randint(8, 16))))
    return problem_of(predecessors, choices)


def test_a_search_stopped_by_its_limit_says_how_far_off_it_may_be() -> None:
    problem, costs = branches(count=5, length=4)
    best = search(problem, costs)
    limits = SearchLimits(max_states=10, plain_states=10, widths=(1, 4))

    stopped = search(problem, costs, limits=limits)

    assert best.exact
    assert (stopped.exact, stopped.method) == (False, "beam")
    assert stopped.total_us - stopped.gap_us <= best.total_us <= stopped.total_us


@repeatable
@given(seed=st.integers(min_value=0))
def test_the_gap_of_a_stopped_search_holds(
    draw: Callable[..., Any], ranked: Callable[..., Any], best_plan: Callable[..., Any], seed: int
) -> None:
    instance = draw(random.Random(seed), "adversarial")
    limits = SearchLimits(max_states=2, plain_states=2, widths=(1, 2, 4))
    wanted = best_plan(instance)
    try:
        result = ExactSearch(instance.problem, instance.costs, limits=limits).run()
    except SearchError:
        return  # the limits left no plan
    assert wanted is not None
    optimum_us = ranked(instance, wanted)[0] / 1e6
    assert result.total_us - result.gap_us <= optimum_us + 1e-6
    if result.exact:
        assert result.total_us == pytest.approx(optimum_us)


def test_no_answer_is_not_taken_for_a_cost() -> None:
    assert CostTable({}).cost(SearchCandidate(nodes=1, target="a", key="k")) is UNMEASURED


def test_positions_that_no_candidate_spans_split_the_problem() -> None:
    count = 600
    choices: list[tuple[list[int], SearchTarget, float | None]] = []
    for node in range(count):
        choices += [([node], A, 2.0), ([node], B, 3.0)]
        if node + 2 < count:
            choices.append(([node, node + 1, node + 2], B, 5.0))
    problem, costs = problem_of([[node - 1] if node else [] for node in range(count)], choices)

    result = search(problem, costs)

    assert result.total_us == 1000.0
    assert result.states == count
