"""What is believed because of profiles."""

from __future__ import annotations

from collage.explore.exhaustive import begun
from collage.explore.profiling import first_beliefs
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import diamond
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, rule_of, setup_of

RELU, EXP, TANH, ADD = range(4)


def test_readers_of_one_value_may_gain_by_being_in_one_kernel() -> None:
    graph = DataflowGraph(diamond((1024, 1024)))
    source = FakeSource(by_operator({"a": dict.fromkeys(("Relu", "Exp", "Tanh", "Add"), 1000.0)}))
    exploration = begun(setup_of(source, [rule_of(a_target("a"))]), empty_pool(graph, source))
    times = dict.fromkeys(range(4), 1000.0)
    alone = {1 << node: time for node, time in times.items()}
    beliefs = first_beliefs(exploration, {"a": times}, {"a": alone}, [1000.0] * 4, ["unary"] * 3 + ["binary"])

    learnt = beliefs.learning([("a", 1 << node, time) for node, time in times.items()])
    learnt = learnt.learning([("a", 1 << EXP | 1 << TANH, 1600.0)])

    assert beliefs.change_us("a", EXP, TANH) == 0
    assert learnt.change_us("a", EXP, TANH) < -300
    assert learnt.mean_us("a", 1 << EXP) > 950  # so it is not that either is faster than it was
    assert abs(learnt.change_us("a", RELU, EXP)) < 10
