"""Times of kernels between their real neighbours, and the search by them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.decide.in_place import fed_back
from collage.decide.shortlist import mixes, singles
from collage.store.normalised import POWER
from collage_core.candidates.chosen_plan import as_plan
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.decide.steps import USUAL_US, raced, targets
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

A, B = a_target("a"), a_target("b")
GRAPH = DataflowGraph(chain("Relu", "Exp", "Neg"))
WHOLES = [kernel(GRAPH, target) for target in (A, B)]
PARTS = [kernel(GRAPH, target, name) for target in (A, B) for name in GRAPH.names]
TRUTH = by_operator(
    {"a": {"Relu": 10.0, "Exp": 50.0, "Neg": 10.0}, "b": {"Relu": 50.0, "Exp": 10.0, "Neg": 14.0}}, launch_us=0.0
)
POOL = pool_of(GRAPH, TRUTH, *WHOLES, *PARTS).pool


def test_a_plan_that_disappoints_in_place_makes_room_for_another() -> None:
    alone = singles(POOL, [A, B])
    [best] = mixes(POOL, 1)
    assert targets(best) == ["a", "b", "a"]
    times = [raced(plan, 70.0) for plan in alone]
    # its last kernel takes three times as long behind its neighbour as by itself
    times.append(raced(best, 50.0, {"k0000": 10.0, "k0001": 10.0, "k0002": 30.0}))

    found = fed_back(POOL, [*alone, best], times, USUAL_US, 1)

    assert found.plans[-1].predicted_us == 50.0
    assert [(plan.name, targets(plan)) for plan in found.worthwhile] == [("mixed-2", ["a", "b", "b"])]
    assert found.worthwhile[0].predicted_us == 34.0
    assert found.alike.engine().run().total_us == 34.0  # no kernel is off in half of the time or more
    assert [found.pool.selected_us(each) for each in PARTS] == [POOL.selected_us(each) for each in PARTS]


def test_times_of_kernels_go_where_their_costs_are_in_whatever_order() -> None:
    [best] = mixes(POOL, 1)
    turned = dataclasses.replace(
        best, partitioning=Partitioning(GRAPH, best.partitioning.kernels[::-1]), costs_us=best.costs_us[::-1]
    )
    times = [raced(turned, 50.0, {"k0000": 11.0, "k0001": 12.0, "k0002": 30.0})]

    [plan] = fed_back(POOL, [turned], times, USUAL_US, 1).plans

    assert [kernel.sub_graph.names for kernel in turned.kernels] == [(name,) for name in GRAPH.names]
    costs = dict(zip((kernel.sub_graph.names[0] for kernel in plan.partitioning.kernels), plan.costs_us, strict=True))
    assert [costs[name] for name in GRAPH.names] == [11.0, 12.0, 30.0]


def test_kernels_that_were_not_timed_in_place_are_as_far_off_as_those_that_were() -> None:
    alone = singles(POOL, [A, B])
    [best] = mixes(POOL, 1)
    # all of its kernels take half as long again: so would those of the plan that looks better now
    times = [*(raced(plan, 53.0) for plan in alone), raced(best, 51.0, {"k0000": 15.0, "k0001": 15.0, "k0002": 17.0})]

    found = fed_back(POOL, [*alone, best], times, USUAL_US, 3)

    assert found.worthwhile == ()
    # what the best plan of all candidates costs is said by costs that are alike, not by some in place and some alone
    assert found.pool.engine().run().total_us < 47.0
    assert found.alike.engine().run().total_us == pytest.approx(47.0)


def test_nothing_is_worthwhile_that_does_not_look_clearly_better_than_what_was_timed() -> None:
    alone = singles(POOL, [A, B])
    [best] = mixes(POOL, 1)
    times = [*(raced(plan, 70.0) for plan in alone), raced(best, 34.2, {"k0000": 10.0, "k0001": 10.0, "k0002": 14.2})]

    assert fed_back(POOL, [*alone, best], times, USUAL_US, 3).worthwhile == ()


@pytest.mark.parametrize(("last_us", "whole_us", "is_worthwhile"), [(30.0, 30.0, True), (13.5, 60.0, False)])
def test_a_further_plan_is_compared_with_what_steps_add_up_to(
    last_us: float, whole_us: float, is_worthwhile: bool
) -> None:
    """Timed one by one, steps take more than a plan as a whole, or less. Another plan's steps would do likewise."""
    [best] = mixes(POOL, 1)
    alone = singles(POOL, [A, B])
    steps = {"k0000": 10.0, "k0001": 10.0, "k0002": last_us}
    times = [*(raced(plan, 70.0) for plan in alone), raced(best, whole_us, steps)]

    found = fed_back(POOL, [*alone, best], times, USUAL_US, 1)

    assert [plan.predicted_us for plan in found.worthwhile] == ([34.0] if is_worthwhile else [])


def test_kernels_of_a_target_are_off_by_what_others_of_that_target_are() -> None:
    [best] = mixes(POOL, 1)
    of_exp = kernel(GRAPH, A, GRAPH.names[1]).sub_graph.nodes
    reverse = POOL.engine().run(lambda c: c.nodes != POOL.whole and (c.target == "a") == (c.nodes == of_exp))
    dearest = as_plan(POOL, "mixed-2", reverse, single=False)
    assert (targets(best), targets(dearest)) == (["a", "b", "a"], ["b", "a", "b"])
    twice_on_a = [
        {
            f"k{number:04}": plan.cost_of[each.sub_graph.nodes] * (2.0 if each.target.name == "a" else 1.0)
            for number, each in enumerate(plan.kernels)
        }
        for plan in (best, dearest)
    ]
    times = [raced(plan, sum(steps.values()), steps) for plan, steps in zip((best, dearest), twice_on_a, strict=True)]

    found = fed_back(POOL, [best, dearest], times, USUAL_US, 0)

    assert [found.alike.cost(whole) for whole in WHOLES] == [140.0, 74.0]
    few = fed_back(POOL, [best], times[:1], USUAL_US, 0)
    assert [few.alike.cost(whole) for whole in WHOLES] == [140.0, 148.0]  # two of a, one of b: as all of them


def test_a_plan_that_failed_or_was_not_timed_in_parts_changes_nothing() -> None:
    alone = singles(POOL, [A, B])
    [best] = mixes(POOL, 1)

    found = fed_back(POOL, [*alone, best], [raced(plan, 70.0) for plan in alone], USUAL_US, 3)

    assert found.worthwhile == ()
    assert [plan.costs_us for plan in found.plans] == [plan.costs_us for plan in [*alone, best]]
    assert found.pool.costs.in_place_us == {}


@given(slow=st.floats(0.25, 4.0))
def test_times_in_place_are_at_the_machine_s_usual_speed(slow: float) -> None:
    [best] = mixes(POOL, 1)
    feels = slow**POWER  # as a kernel feels what the calibration kernel does
    parts = {f"k000{number}": 20.0 * feels for number in range(3)}

    found = fed_back(POOL, [best], [raced(best, 60.0 * feels, parts, parts, beside_us=USUAL_US * slow)], USUAL_US, 0)

    assert found.plans[0].costs_us == pytest.approx((20.0,) * 3)


def test_equal_kernels_of_a_plan_keep_their_own_times_and_share_their_cost() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Relu"))
    pool = pool_of(graph, TRUTH, *(kernel(graph, A, name) for name in graph.names)).pool
    [plan] = mixes(pool, 1)
    parts = {"k0000": 10.0, "k0001": 50.0, "k0002": 20.0}

    found = fed_back(pool, [plan], [raced(plan, 80.0, parts)], USUAL_US, 0)

    assert sorted(found.plans[0].costs_us) == [10.0, 20.0, 50.0]
    assert found.pool.cost(kernel(graph, A, graph.names[0])) == 15.0


def test_names_of_further_plans_are_new() -> None:
    [best] = mixes(POOL, 1)
    taken = dataclasses.replace(best, name="mixed-2")
    times = [raced(taken, 50.0, {"k0000": 10.0, "k0001": 10.0, "k0002": 30.0})]

    assert [plan.name for plan in fed_back(POOL, [taken], times, USUAL_US, 1).worthwhile] == ["mixed-1"]


def test_what_kernels_are_off_by_is_learnt_from_those_that_were_timed() -> None:
    [best] = mixes(POOL, 1)
    parts = ({"k0000": 15.0, "k0001": 15.0, "k0002": 15.0}, {"k0000": 5.0, "k0001": 15.0, "k0002": 45.0})
    steady, rough = (fed_back(POOL, [best], [raced(best, 51.0, each)], USUAL_US, 1).off_by_us for each in parts)

    # three kernels as expected count as many as three of which nothing is known; then two of them are off by 3
    assert steady == pytest.approx(10.0 / 2)
    assert rough == pytest.approx(10.0)  # of 0, 10, 10, 10 and twice 15 * log(3)**2 / 0.455


def test_that_few_small_kernels_are_far_off_says_nothing_of_large_ones() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg", "Relu", "Exp", "Neg", "Tanh"))
    truth = by_operator({"a": {"Relu": 20000.0, "Exp": 20000.0, "Neg": 20000.0, "Tanh": 100.0}}, launch_us=0.0)
    pool = pool_of(graph, truth, *(kernel(graph, A, name) for name in graph.names)).pool
    [plan] = mixes(pool, 1)
    parts = {f"k{number:04}": 20050.0 if number % 2 else 19950.0 for number in range(6)} | {"k0006": 300.0}

    found = fed_back(pool, [plan], [raced(plan, sum(parts.values()), parts)], USUAL_US, 1)

    assert found.off_by_us < 2.0
