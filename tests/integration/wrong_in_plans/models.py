"""Small models, and values that a plan of theirs meets only when it is verified."""

from __future__ import annotations

import numpy as np
import onnx_ir

from collage.setup.workload import Workload
from collage_testing import GraphBuilder


def product() -> onnx_ir.Model:
    """Return a model of `mul_0`, which `steady` runs, and `relu_0`."""
    g = GraphBuilder("product")
    return g.model(g.op("Relu", g.op("Mul", g.input("x", 8, 16), g.input("z", 8, 16))))


def chain() -> onnx_ir.Model:
    """Return a model of three nodes that `sly` runs: `relu_0`, `sigmoid_0`, `tanh_0`."""
    g = GraphBuilder("chain")
    return g.model(g.op("Tanh", g.op("Sigmoid", g.op("Relu", g.input("x", 8, 16)))))


def fresh_value(model: onnx_ir.Model) -> float:
    """Return the largest of the inputs that a plan is verified on, which is not among those it was searched on."""
    workload = Workload(model)
    [fresh], [searched] = workload.fresh_inputs().values(), workload.inputs.values()
    value = np.asarray(fresh).max()
    assert value not in np.asarray(searched)
    return float(value)
