"""A cost source over a real database and a real worker, and candidates of the toolchain that misbehaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir
from onnx_ir.passes.common import ShapeInferencePass

from collage.measure.driver.source import MeasuringCostSource
from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionRule, FusionSpec, RuleContext, RuleOutcome, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph

Make = Callable[..., MeasuringCostSource]
"""Makes a source over one database; see the fixture `make`."""


def faulty_target(mode: str = "") -> Target:
    """The target of `faulty_plugin` that misbehaves in this way."""
    return Target(toolchain="faulty", options=(("mode", mode),) if mode else (), fingerprint="faulty 1")


class NoRule(FusionRule):
    """For candidates that are made one by one: nothing asks it to propose any."""

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        raise NotImplementedError


def chain() -> DataflowGraph:
    """Three equal additions, then one of another shape of weight."""
    model = onnx_ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[512] x) => (float[512] d) { a = Add(x, w)  b = Add(a, w)  c = Add(b, w)  d = Mul(c, w) }"""
    )
    w = next(value for value in model.graph[0].inputs if value is not None and value.name == "w")
    for node in model.graph:
        node.replace_input_with(1, w)
    w.const_value = onnx_ir.tensor(np.arange(512, dtype=np.float32), name="w")
    model.graph.initializers["w"] = w
    return DataflowGraph(ShapeInferencePass()(model).model)


def candidate(graph: DataflowGraph, node: int, mode: str = "") -> CandidateKernel:
    target = faulty_target(mode)
    return CandidateKernel(SubGraph(graph, 1 << node), FusionSpec(name=target.name, rule=NoRule(), targets=(target,)))
