"""A node nobody covers aborted the whole pass, as did a state from which nothing led on."""

from __future__ import annotations

import pytest

from collage_core.contract import INVALID, Joins
from collage_core.errors import NoCoverError
from collage_core.search import CostTable, SearchCandidate, SearchProblem, SearchTarget, search
from collage_testing import MockToolchain, chain, partition


def first_fit(problem: SearchProblem, costs: dict[str, float]) -> list[str]:
    """The old way: from one state to the next by the cheapest candidate per node, and no way back.

    Raises:
        RuntimeError: At a state from which nothing leads on, which ended the pass.
    """
    covered, chosen = 0, []
    while covered != problem.needs_kernel:
        left = problem.needs_kernel & ~covered
        usable = [c for c in problem.candidates if c.nodes & left & -left and not c.nodes & covered]
        if not usable:
            raise RuntimeError("no candidate leads on")
        best = min(usable, key=lambda candidate: costs[candidate.key] / candidate.nodes.bit_count())
        covered |= best.nodes
        chosen.append(best.key)
    return chosen


def test_a_dead_end_is_left_for_another_way() -> None:
    # After {0, 1} nobody can run 2 alone; {1, 2} would have been needed.
    problem = SearchProblem.from_predecessors(
        [[], [0], [1]],
        targets=[SearchTarget(name="t", toolchain="t")],
        candidates=[
            SearchCandidate(nodes=nodes, target="t", key=key) for key, nodes in (("01", 3), ("0", 1), ("12", 6))
        ],
    )
    costs = {"01": 1.0, "0": 5.0, "12": 5.0}

    with pytest.raises(RuntimeError, match="leads on"):
        first_fit(problem, costs)

    result = search(problem, CostTable({("t", key): cost for key, cost in costs.items()}))
    assert [candidate.key for candidate in result.candidates] == ["0", "12"]
    assert result.exact


def test_a_node_that_one_toolchain_refuses_goes_to_another_and_the_rest_stays() -> None:
    costs = {"Relu": 1.0, "Exp": 1.0, "Tanh": 1.0}
    narrow = MockToolchain("narrow", costs_us=costs, operators=["Relu", "Tanh"])
    wide = MockToolchain("wide", costs_us=dict.fromkeys(costs, 10.0), operators=list(costs))

    result = partition(chain("Relu", "Exp", "Tanh"), [narrow, wide])

    assert [kernel.toolchain for kernel in result.kernels] == ["narrow", "wide", "narrow"]


def test_a_node_nobody_runs_is_named_with_every_refusal() -> None:
    left = MockToolchain("left", costs_us={"Relu": 1.0}, operators=["Relu"])
    right = MockToolchain("right", costs_us={"Relu": 1.0}, operators=["Relu"], query={"relu_0": "too small"})

    with pytest.raises(NoCoverError) as caught:
        partition(chain("Relu", "Exp"), [left, right])

    assert "exp_0" in str(caught.value)
    assert "left" in str(caught.value)
    assert "right" in str(caught.value)


def test_where_every_candidate_is_invalid_there_is_an_error_and_no_plan_of_infinite_cost() -> None:
    def never(candidate: object) -> float:
        return INVALID

    broken = MockToolchain("broken", costs_us=never, operators=["Relu", "Exp"], joins=Joins.ANY)

    with pytest.raises(NoCoverError):
        partition(chain("Relu", "Exp"), [broken])
