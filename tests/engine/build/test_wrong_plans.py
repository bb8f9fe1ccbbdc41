"""What is known against plans, and under which bound."""

from __future__ import annotations

from collage.build.verifying.wrong_plans import WrongPlans
from collage.devices.this_host import this_host
from collage.store.memory import MemoryStore
from collage_core.candidates.plan import Plan
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import single_matmul
from tests.engine.exploring import a_target, kernel


def test_a_plan_that_is_too_inexact_is_so_up_to_that_bound() -> None:
    graph = DataflowGraph(single_matmul(m=16, n=16, k=16))
    partitioning = Partitioning(graph, (kernel(graph, a_target("a")),))
    plan = Plan(name="p", single=True, partitioning=partitioning, costs_us=(1.0,), dispatch_us=0.0)
    known = WrongPlans(MemoryStore(), "model", "key", this_host(), 2)

    known.note(plan, ["1"], "its error is 0.01", bound=1e-3)
    assert known.reason(plan, ["1"], 1e-3) == known.reason(plan, ["1"], 1e-4) == "its error is 0.01"
    assert known.reason(plan, ["1"], 0.02) == known.reason(plan, ["2"], 1e-3) == ""

    known.note(plan, ["1"], "its numbers are off")
    assert known.reason(plan, ["1"], 0.02) == "its numbers are off"
    known.note(plan, ["1"], "")
    assert known.reason(plan, ["1"], 1e-3) == ""
