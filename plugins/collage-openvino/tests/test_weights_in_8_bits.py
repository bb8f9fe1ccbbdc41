"""Products whose weights alone are 8-bit integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import Target
from collage_core.fusion import SubGraph
from collage_core.fusion.kernel import kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product
from collage_openvino.kernel import import_model
from collage_openvino.plugin import plugin
from collage_testing import GraphBuilder
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction

TARGET = Target(toolchain="openvino", options=(("precision", "int8-weights"),), fingerprint="test", exact=False)
ROWS, INNER, COLUMNS = 2, 256, 512


def model(operator: str) -> DataflowGraph:
    """Return one product of few rows."""
    g = GraphBuilder("layer")
    x = g.input("x", ROWS, INNER)
    if operator == "MatMul":
        return DataflowGraph(g.model(g.op("MatMul", x, g.weight("w", INNER, COLUMNS))))
    return DataflowGraph(g.model(g.op("Gemm", x, g.weight("w", COLUMNS, INNER), g.weight("b", COLUMNS), transB=1)))


def weights_only(operator: str) -> WrittenFunction:
    """Return one product with its weight in 8 bits, as core makes it."""
    graph = model(operator)
    function = kernel_function(SubGraph(graph, 1, int8=(Int8Product(0, None),)), "layer")
    values = function.model.graph.initializers.items()
    arrays = {name: tensor.numpy() for name, value in values if (tensor := value.const_value) is not None}
    return WrittenFunction(proto=onnx_ir.to_proto(function.model), function=function, arrays=arrays)


@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_the_weight_stays_in_8_bits_and_the_activation_is_not_rounded(operator: str, tmp_path: Path) -> None:
    kernels = HostKernels(plugin, TARGET, tmp_path)
    what = weights_only(operator)
    feeds = {"x": np.random.default_rng(7).standard_normal((ROWS, INNER)).astype(np.float32)}
    # one large number: rounding this row to 8 bits would be 0.4 off at each other one
    feeds["x"][:, 0] = 100.0

    kernels.check(what, feeds, tolerance=1e-5)

    [artifact] = kernels.lowered(what)
    compiled = import_model(plugin.core(), TARGET, artifact, kernels.run_context(what))
    facts = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    assert [str(each["runtimePrecision"].astype(str)) for each in facts if _is_product(each)] == ["i8"]


def _is_product(facts: Any) -> bool:
    return str(facts["layerType"].astype(str)) in ("FullyConnected", "MatMul")
