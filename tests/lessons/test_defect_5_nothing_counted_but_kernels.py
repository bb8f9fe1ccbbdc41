"""No cost of a launch, inputs from uniform(-1, 1) with integers all zero, one noisy number instead of a distribution.

Of the rest of that defect, which takes real processes, `tests/integration/faults` has deadlines and isolation,
`tests/integration/commands/test_resume.py` and `test_killed.py` have the cache that lasts.
"""

from __future__ import annotations

import numpy as np
import onnx_ir

from collage.decide.decision import decide
from collage.decide.shortlist import mixes
from collage.decide.timed import Timed
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import a_target, kernel, pool_of


def test_a_launch_counts_for_each_kernel() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Neg"))
    target = a_target("t")
    costs = {("relu_0",): 1.0, ("exp_0",): 1.0, ("neg_0",): 1.0, ("relu_0", "exp_0"): 2.3}

    def truth(candidate: CandidateKernel) -> float:
        return costs[candidate.sub_graph.names]

    candidates = [kernel(graph, target, *nodes) for nodes in costs]

    found = {}
    for launch_us in (0.0, 0.5):
        [plan] = mixes(pool_of(graph, truth, *candidates, dispatch_us=launch_us).pool, 1)
        found[launch_us] = [each.sub_graph.names for each in plan.kernels]

    assert found[0.0] == [("relu_0",), ("exp_0",), ("neg_0",)], "without, as it was, nothing is worth fusing"
    assert found[0.5] == [("relu_0", "exp_0"), ("neg_0",)]


def test_inputs_are_what_a_model_takes() -> None:
    model = onnx_ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (int64[64] ids, float[100, 8] table, float[4096] x) => (float[64, 8] rows, float[4096] y) {
          rows = Gather (table, ids)
          y = Relu (x)
        }""")

    values = random_inputs(DataflowGraph(model), seed=0)

    assert len(set(values["ids"].tolist())) > 20, "all zero, every row would be the same one and always cached"
    assert values["ids"].max() < 100
    assert np.abs(values["x"]).max() > 2.5, "uniform(-1, 1) never leaves the range where many functions are linear"
    assert abs(float(values["x"].std()) - 1.0) < 0.1


def test_one_lucky_sample_decides_nothing() -> None:
    def plan(name: str, first_us: float, *, single: bool) -> Timed:
        noise = np.random.default_rng(len(name)).normal(100.0, 5.0, (12, 9))
        noise[0, 0] = first_us
        rounds = tuple(tuple(row) for row in noise.tolist())
        return Timed(name=name, single=single, kernels=1, toolchains=1 if single else 2, rounds_us=rounds)

    steady, lucky = plan("steady", 100.0, single=True), plan("lucky", 50.0, single=False)
    fastest = min((steady, lucky), key=lambda each: min(min(samples) for samples in each.rounds_us))

    assert fastest is lucky, "by the least of what was measured, as it was, it wins"
    assert decide([steady, lucky], seed=0).winner == "steady"
