from __future__ import annotations

import pytest

from collage.control.tie_breaking import TieBreaking
from collage.decide.compatible_sets import compatible_set_facts
from collage.decide.shortlist import WITHIN, mixes, shortlist, singles
from collage.measure.wire.outcomes import Failed, Refused
from collage_core.candidates.plan import Plan
from collage_core.contract import Joins, Target
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

A, B = a_target("a"), a_target("b")


def kernels(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.target.name, each.sub_graph.names) for each in plan.kernels]


def test_a_target_that_takes_everything_is_one_kernel_even_where_several_are_predicted_faster() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    truth = by_operator({"a": {"Relu": 5.0, "Exp": 5.0}}, launch_us=-4.0)
    pool = pool_of(graph, truth, kernel(graph, A), kernel(graph, A, "relu_0"), kernel(graph, A, "exp_0")).pool

    [plan] = singles(pool, [A])

    assert kernels(plan) == [("a", ("relu_0", "exp_0"))]
    assert (plan.name, plan.single) == ("a", True)


def test_a_target_that_refuses_a_node_keeps_its_largest_regions_and_the_cheapest_other_takes_the_rest() -> None:
    graph = DataflowGraph(chain("Relu", "Neg", "Exp", "Abs", "Tanh"))
    c = a_target("c")
    truth = by_operator(
        {
            "a": {"Relu": 50.0, "Neg": 50.0, "Abs": 50.0, "Tanh": 50.0},
            "b": {"Relu": 1.0, "Neg": 1.0, "Exp": 9.0, "Abs": 1.0, "Tanh": 1.0},
            "c": {"Exp": 3.0},
        }
    )
    regions = [kernel(graph, A, "relu_0", "neg_0"), kernel(graph, A, "abs_0", "tanh_0"), kernel(graph, A, "neg_0")]
    others = [kernel(graph, B, name) for name in graph.names]
    pool = pool_of(graph, truth, *regions, *others, kernel(graph, B), kernel(graph, c, "exp_0")).pool

    plans = {plan.name: plan for plan in singles(pool, [A, B, c])}

    assert kernels(plans["a"]) == [("a", ("relu_0", "neg_0")), ("c", ("exp_0",)), ("a", ("abs_0", "tanh_0"))]
    assert kernels(plans["b"]) == [("b", graph.names)]
    assert plans["a"].single
    # most of it is others' work: still what one would get by giving `c` all it takes
    assert [target for target, _ in kernels(plans["c"])].count("c") == 1


def test_a_region_that_failed_is_not_the_targets() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg"))
    truth = by_operator({"a": {"Relu": 1.0, "Neg": 1.0}, "b": {"Relu": 1.0, "Exp": 1.0, "Neg": 1.0}})
    mine = [kernel(graph, A), kernel(graph, A, "relu_0"), kernel(graph, A, "neg_0")]
    pool = pool_of(graph, truth, *mine, *(kernel(graph, B, name) for name in graph.names)).pool

    [plan] = singles(pool, [A])

    assert kernels(plan) == [("a", ("relu_0",)), ("b", ("exp_0",)), ("a", ("neg_0",))]


@pytest.mark.parametrize(
    "target", [a_target("a", mixable=False), a_target("a", joins=Joins.NONE)], ids=["not mixable", "single kernels"]
)
def test_a_target_that_takes_only_part_stands_alone_only_if_it_mixes_and_joins(target: Target) -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    truth = by_operator({"a": {"Relu": 1.0}, "b": {"Relu": 1.0, "Exp": 1.0}})
    part = kernel(graph, target, "relu_0")
    pool = pool_of(graph, truth, part, kernel(graph, B, "relu_0"), kernel(graph, B, "exp_0")).pool

    assert singles(pool, [target]) == ()


def test_no_plan_where_nobody_takes_the_rest() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    pool = pool_of(graph, by_operator({"a": {"Relu": 1.0}}), kernel(graph, A, "relu_0")).pool

    assert singles(pool, [A]) == ()
    assert mixes(pool, 2) == ()


def test_mixes_are_the_cheapest_plan_and_the_cheapest_without_its_dearest_kernels() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg"))
    truth = by_operator({"a": {"Relu": 90.0, "Exp": 20.0, "Neg": 50.0}, "b": {"Relu": 95.0, "Exp": 21.0, "Neg": 60.0}})
    each = [kernel(graph, target, name) for target in (A, B) for name in graph.names]
    pool = pool_of(graph, truth, *each, kernel(graph, A)).pool

    plans = mixes(pool, 4)

    assert [plan.name for plan in plans] == ["mixed-1", "mixed-2"]
    assert ["".join(target for target, _ in kernels(plan)) for plan in plans] == ["aaa", "baa"]
    assert [plan.predicted_us for plan in plans] == sorted(plan.predicted_us for plan in plans)
    assert not any(plan.single or len(plan.kernels) < 2 for plan in plans)


def test_a_kernel_with_almost_the_same_nodes_makes_no_other_mix() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg", "Abs", "Tanh", "Sin"))
    names = graph.names
    truth = by_operator(
        {"a": dict.fromkeys(("Relu", "Exp", "Neg", "Abs", "Tanh", "Sin"), 10.0), "b": {"Relu": 9.0, "Exp": 9.9}}
    )
    large = [kernel(graph, A, *names[1:]), kernel(graph, A, *names[2:])]
    small = [kernel(graph, B, names[0]), kernel(graph, B, names[1]), *(kernel(graph, A, name) for name in names)]

    plans = mixes(pool_of(graph, truth, *large, *small).pool, 2)

    assert [len(plan.kernels) for plan in plans] == [2, 6]


@pytest.mark.parametrize(
    ("joined_us", "timed"),
    [
        (23.6, [["aaab", 4], ["ab", 2], ["aaaa", 4]]),  # 9.5 % dearer with two kernels less
        (24.0, [["aaab", 4], ["aaaa", 4]]),  # 10.6 % dearer
    ],
)
def test_after_the_cheapest_plan_a_simple_one_is_timed_that_may_be_as_fast(
    joined_us: float, timed: list[list[str | int]]
) -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg", "Abs"))
    first = graph.names[:3]

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        if len(candidate.sub_graph.names) > 1:
            return joined_us if candidate.sub_graph.names == first else 50.0
        return 6.6 if candidate.sub_graph.names[0] in first else {"a": 21.0, "b": 20.0}[candidate.target.name]

    each = [kernel(graph, A, name) for name in graph.names]
    others = [kernel(graph, B, "abs_0"), kernel(graph, A, *first), kernel(graph, A), kernel(graph, B)]
    pool = pool_of(graph, truth, *each, *others)

    plans, _ = shortlist(pool.pool, [A, B], 3, pool.source, TieBreaking())

    mixed = [plan for plan in plans if not plan.single]
    assert [["".join(target for target, _ in kernels(plan)), len(plan.kernels)] for plan in mixed] == timed
    assert [plan.name for plan in mixed] == [f"mixed-{number + 1}" for number in range(len(timed))]


def test_a_mix_much_slower_than_one_kernel_is_not_worth_timing() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))

    def shortlisted(launch_us: float) -> int:
        truth = by_operator({"a": {"Relu": 50.0, "Exp": 50.0}}, launch_us=launch_us)
        pool = pool_of(graph, truth, *(kernel(graph, A, *n) for n in ((), ("relu_0",), ("exp_0",)))).pool
        return len(mixes(pool, 1))

    # 100 + 2 launches against 100 + 1
    assert shortlisted(10.0) == 1
    assert shortlisted(80.0) == 0
    assert 1.0 < WITHIN < 1.4


@pytest.mark.parametrize(
    ("whole_us", "timed"),
    [
        (200.0, ["a", "mixed-1", "mixed-2"]),
        (150.0, ["a", "mixed-1"]),  # the other is predicted to take 158
        (140.0, ["a", "mixed-1"]),  # both are slower: one tells whether predictions are off
    ],
)
def test_of_mixes_that_look_slower_than_a_single_toolchain_one_is_timed_at_most(
    whole_us: float, timed: list[str]
) -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    whole = kernel(graph, A)
    by_node = by_operator({"a": {"Relu": 100.0, "Exp": 48.0}, "b": {"Relu": 110.0, "Exp": 60.0}}, launch_us=0.0)

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        return whole_us if candidate.sub_graph.nodes == whole.sub_graph.nodes else by_node(candidate)

    each = [kernel(graph, target, name) for target in (A, B) for name in graph.names]
    measured = pool_of(graph, truth, whole, *each)

    plans, said = shortlist(measured.pool, [A], 3, measured.source, TieBreaking())

    assert ([plan.name for plan in plans], said) == (timed, [])


def test_a_mix_that_is_a_toolchains_own_plan_keeps_no_other_from_being_timed() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    truth = by_operator({"a": {"Relu": 100.0, "Exp": 48.0}, "b": {"Relu": 110.0, "Exp": 60.0}}, launch_us=0.0)
    pool = pool_of(graph, truth, *(kernel(graph, target, name) for target in (A, B) for name in graph.names))

    plans, _ = shortlist(pool.pool, [A], 3, pool.source, TieBreaking())

    assert [(plan.name, plan.targets, plan.predicted_us) for plan in plans] == [
        ("a", ("a",), 148.0),
        ("mixed-1", ("a",), 148.0),
        ("mixed-2", ("a", "b"), 158.0),
    ]


def test_mixes_on_a_device_are_timed_however_they_look() -> None:
    """Nothing is timed in its place there, so they could not join later."""
    graph = DataflowGraph(chain("Relu", "Exp"))
    gpu = a_target("b", device="fake:0")
    costs_us = {"a": {"Relu": 100.0, "Exp": 48.0}, gpu.name: {"Relu": 110.0, "Exp": 60.0}}
    each = [kernel(graph, A), *(kernel(graph, target, name) for target in (A, gpu) for name in graph.names)]
    pool = pool_of(graph, by_operator(costs_us, launch_us=0.0), *each)

    plans, _ = shortlist(pool.pool, [A], 3, pool.source, TieBreaking())

    assert [plan.targets for plan in plans] == [("a",), ("a",), ("a", gpu.name)]
    assert plans[2].predicted_us > plans[0].predicted_us


def test_without_a_whole_model_kernel_every_mix_is_worth_timing() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    truth = by_operator({"a": {"Relu": 1.0}, "b": {"Exp": 1e6}})
    pool = pool_of(graph, truth, kernel(graph, A, "relu_0"), kernel(graph, B, "exp_0")).pool

    [plan] = mixes(pool, 2)

    assert plan.toolchains == ("a", "b")


def test_of_targets_that_exclude_each_other_each_set_has_its_best_plan_among_the_mixes() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg"))
    left, right, cpu = a_target("left", excludes=frozenset({"right"})), a_target("right"), a_target("cpu")
    truth = by_operator(
        {
            "left": {"Relu": 10.0, "Exp": 40.0},
            "right": {"Neg": 12.0, "Exp": 30.0},
            "cpu": {"Relu": 30.0, "Exp": 50.0, "Neg": 31.0},
        }
    )
    each = [
        *(kernel(graph, left, name) for name in ("relu_0", "exp_0")),
        *(kernel(graph, right, name) for name in ("exp_0", "neg_0")),
        *(kernel(graph, cpu, name) for name in graph.names),
    ]
    pool = pool_of(graph, truth, *each).pool

    plans = mixes(pool, 2)

    assert [[target for target, _ in kernels(plan)] for plan in plans] == [
        ["cpu", "right", "right"],  # 72 and three launches
        ["left", "left", "cpu"],  # 81
    ]
    assert [len(mixes(pool, count)) for count in (0, 1, 3)] == [0, 1, 2]  # others are hopeless
    facts = compatible_set_facts(pool)
    assert [(each.targets, each.predicted_ms, each.used) for each in facts] == [
        (("cpu", "left"), 0.084, ("cpu", "left")),
        (("cpu", "right"), 0.075, ("cpu", "right")),
    ]


def test_a_set_whose_best_plan_is_hopeless_takes_no_turn() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    left, right = a_target("left", excludes=frozenset({"right"})), a_target("right")
    costs = {"Relu": 10.0, "Exp": 10.0}
    truth = by_operator({"left": costs, "right": dict.fromkeys(costs, 90.0)})
    pool = pool_of(
        graph, truth, *(kernel(graph, target, name) for target in (left, right) for name in graph.names)
    ).pool

    assert [plan.targets for plan in mixes(pool, 3)] == [("left",)]


def test_a_set_that_covers_no_plan_is_told_without_one() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    left, right = a_target("left", excludes=frozenset({"right"})), a_target("right")
    truth = by_operator({"left": {"Relu": 1.0, "Exp": 2.0}, "right": {"Exp": 1.0}})
    own = [kernel(graph, left, name) for name in graph.names]
    pool = pool_of(graph, truth, *own, kernel(graph, right, "exp_0")).pool

    assert [(each.targets, each.predicted_ms) for each in compatible_set_facts(pool)] == [
        (("left",), 0.005),
        (("right",), None),
    ]


def test_where_all_targets_may_share_a_plan_there_are_no_sets_to_tell_of() -> None:
    graph = DataflowGraph(chain("Relu"))
    alone = a_target("c", mixable=False)
    truth = by_operator({name: {"Relu": 1.0} for name in "abc"})
    pool = pool_of(graph, truth, *(kernel(graph, target) for target in (A, B, alone))).pool

    assert compatible_set_facts(pool) == ()
