from __future__ import annotations

import dataclasses

import pytest

from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain, diamond
from tests.core.candidates.making import a_target, kernel

A, B = a_target("a"), a_target("b")


def plan_of(graph: DataflowGraph, *parts: tuple[Target, str, float], name: str = "p") -> Plan:
    """A kernel of one node for each part: target, node, cost."""
    kernels = tuple(kernel(graph, target, node) for target, node, _ in parts)
    costs = tuple(cost for _, _, cost in parts)
    return Plan(name=name, single=False, partitioning=Partitioning(graph, kernels), costs_us=costs, dispatch_us=0.5)


def test_kernels_are_in_execution_order_and_costs_stay_with_their_kernels() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Tanh"))

    plan = plan_of(graph, (B, "tanh_0", 3.0), (A, "relu_0", 1.0), (B, "exp_0", 2.0))

    assert [k.sub_graph.names for k in plan.kernels] == [("relu_0",), ("exp_0",), ("tanh_0",)]
    assert [plan.cost_of[k.sub_graph.nodes] for k in plan.kernels] == [1.0, 2.0, 3.0]
    assert plan.toolchains == ("a", "b")


def test_a_prediction_adds_what_the_loop_adds_to_each_kernel() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))

    assert plan_of(graph, (A, "relu_0", 1.0), (A, "exp_0", 2.0)).predicted_us == 1.0 + 2.0 + 2 * 0.5


def test_a_plan_has_a_cost_for_each_kernel() -> None:
    graph = DataflowGraph(chain("Relu"))
    whole = Partitioning(graph, (kernel(graph, A, "relu_0"),))

    with pytest.raises(ValueError, match="a cost for each kernel"):
        Plan(name="p", single=True, partitioning=whole, costs_us=(), dispatch_us=0.0)


def test_plans_of_the_same_kernels_are_the_same_whatever_their_name_order_and_costs() -> None:
    graph = DataflowGraph(diamond())
    parts = [(A, "relu_0", 1.0), (B, "exp_0", 2.0), (B, "tanh_0", 3.0), (A, "add_0", 4.0)]

    one = plan_of(graph, *parts, name="one")
    other = plan_of(graph, *((target, node, 9.0) for target, node, _ in reversed(parts)), name="other")

    assert one.key == other.key


@pytest.mark.parametrize(
    "other", [B, a_target("a", options=(("spin", "true"),)), a_target("a", fingerprint="a 2")], ids=lambda t: t.name
)
def test_another_target_or_version_makes_another_plan(other: Target) -> None:
    graph = DataflowGraph(chain("Relu"))

    assert plan_of(graph, (A, "relu_0", 1.0)).key != plan_of(graph, (other, "relu_0", 1.0)).key


def test_another_cut_makes_another_plan() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    cut = plan_of(graph, (A, "relu_0", 1.0), (A, "exp_0", 2.0))
    whole = dataclasses.replace(cut, partitioning=Partitioning(graph, (kernel(graph, A),)), costs_us=(3.0,))

    assert cut.key != whole.key
