from __future__ import annotations

from collage.explore.certificate import certified
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

A, B = a_target("a"), a_target("b")
GRAPH = DataflowGraph(chain("Relu", "Exp"))
TRUTH = by_operator({"a": {"Relu": 1.0, "Exp": 20.0}, "b": {"Relu": 20.0, "Exp": 1.0}}, launch_us=0.0)
CANDIDATES = [kernel(GRAPH, target, *names) for target in (A, B) for names in ((), ("relu_0",), ("exp_0",))]


def test_the_best_plan_is_certified_with_the_solver_and_what_it_looked_at() -> None:
    said = certified(pool_of(GRAPH, TRUTH, *CANDIDATES).pool, 2.0)

    assert said.startswith("certified by an integer program (HiGHS of SciPy ")
    assert "6 candidates with a cost" in said
    assert said.endswith("no plan is cheaper than 2.0 us")


def test_a_plan_that_is_not_the_best_is_not_certified() -> None:
    said = certified(pool_of(GRAPH, TRUTH, *CANDIDATES).pool, 21.0)

    assert "found a plan of 2.0 us" in said
    assert "the search found 21.0 us" in said


def test_where_there_is_no_plan_nothing_is_decided() -> None:
    said = certified(pool_of(GRAPH, TRUTH, CANDIDATES[1]).pool, 1.0)

    assert said.startswith("the integer program did not decide")
