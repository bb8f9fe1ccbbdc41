"""The worked example of Collage's first design: one model over four kinds of toolchain, as a golden partitioning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest
from onnx_ir.passes.common import InlinePass

from collage_core.contract import Joins, Unsupported
from collage_core.ir.graph.canonical import structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.call_sites import call_sites
from collage_core.passes.marking import TARGET_METADATA
from collage_core.patterns import is_constant, is_op, wildcard
from collage_testing import (
    CandidateView,
    MockToolchain,
    OutPriced,
    PartitionResult,
    Refused,
    mnist,
    partition,
    per_operator,
)

LAUNCH_US = 2.0

NATIVE = MockToolchain(
    "native",  # as TVM: a code generator with neither patterns nor predicates gets native fusion
    costs_us=per_operator({"Pad": 3, "Conv": 40, "Add": 4, "Relu": 2, "MaxPool": 6, "MatMul": 12}),
    joins=Joins.NATIVE,
)

CUDNN = MockToolchain(
    "cudnn",  # a library of single kernels
    costs_us={"Conv": 20},
    patterns={"cudnn.conv2d": is_op("Conv")(wildcard(), is_constant())},
)


def tensorrt_us(candidate: CandidateView) -> float | Unsupported:
    """Fuses a convolution with what follows, and is good at many channels: the second convolution."""
    if candidate.operators != ("Conv", "Add", "Relu"):
        return 50.0
    return 15.0 if candidate.elements == 3 * 16 * 14 * 14 else 35.0


TENSORRT = MockToolchain(
    "tensorrt",  # says operator by operator what it takes, and fuses natively
    costs_us=tensorrt_us,
    operators=["Conv", "Add", "Relu", "MaxPool"],
    joins=Joins.NATIVE,
)

CUTLASS = MockToolchain(
    "cutlass",  # templates for whole patterns
    costs_us={"MatMul": 4, "Add": 1},
    patterns={"cutlass.dense_bias": is_op("Add")(is_op("MatMul")(wildcard(), is_constant()), is_constant())},
)

KERNELS = [
    ("native", ("pad_0",), 3.0),
    ("cudnn", ("conv_0",), 20.0),
    ("native", ("add_0", "relu_0"), 6.0),
    ("native", ("maxpool_0",), 6.0),
    ("native", ("pad_1",), 3.0),
    ("tensorrt", ("conv_1", "add_1", "relu_1"), 15.0),
    ("native", ("maxpool_1",), 6.0),
    ("cutlass", ("matmul_0", "add_2"), 5.0),
]


@pytest.fixture(scope="module")
def result() -> PartitionResult:
    return partition(mnist(), [NATIVE, CUDNN, TENSORRT, CUTLASS], dispatch_us=LAUNCH_US)


def test_each_part_goes_to_the_toolchain_that_the_design_gives_it_to(result: PartitionResult) -> None:
    assert [(kernel.toolchain, kernel.nodes, kernel.cost_us) for kernel in result.kernels] == KERNELS
    assert result.total_us == 64.0 + 8 * LAUNCH_US
    assert result.exact


def test_the_reshape_is_host_work_and_in_no_kernel(result: PartitionResult) -> None:
    order = [node.name for node in result.model.graph]

    assert order == ["k0000", "k0001", "k0002", "k0003", "k0004", "k0005", "k0006", "reshape_0", "k0007"]


def test_functions_say_who_compiles_them_and_what_they_are(result: PartitionResult) -> None:
    facts = [site.function.metadata_props for site in call_sites(result.model)]

    assert all(each["collage.primitive"] == "1" for each in facts)
    assert [each["collage.compiler"] for each in facts] == [toolchain for toolchain, _, _ in KERNELS]
    assert [each[TARGET_METADATA] for each in facts] == [toolchain for toolchain, _, _ in KERNELS]
    assert [each["collage.composite"] for each in facts] == [
        "",
        "cudnn.conv2d",
        "",
        "",
        "",
        "",
        "",
        "cutlass.dense_bias",
    ]
    assert len({each["collage.global_symbol"] for each in facts}) == len(KERNELS)


def test_inlining_gives_the_original_back(result: PartitionResult, evaluate: Callable[..., list[Any]]) -> None:
    original, inlined = mnist(), result.model.clone()
    InlinePass()(inlined)
    x = np.random.default_rng(0).normal(size=(1, 1, 28, 28)).astype(np.float32)

    assert not inlined.functions
    assert [node.op_type for node in inlined.graph] == [node.op_type for node in original.graph]
    assert _hash(inlined) == _hash(original)
    [expected] = evaluate(original, {"x": x})
    for model in (inlined, result.model):
        np.testing.assert_array_equal(evaluate(model, {"x": x})[0], expected)


def test_every_toolchain_that_lost_a_part_says_why(result: PartitionResult) -> None:
    assert result.why_not("native") == [
        OutPriced(region=1, cost_us=42.0, chosen_us=22.0),
        OutPriced(region=5, cost_us=48.0, chosen_us=17.0),
        OutPriced(region=7, cost_us=18.0, chosen_us=7.0),
    ]
    assert result.why_not("tensorrt") == [
        Refused(node="pad_0", reason="no predicate takes Pad"),
        OutPriced(region=1, cost_us=52.0, chosen_us=22.0),
        OutPriced(region=2, cost_us=52.0, chosen_us=8.0),
        OutPriced(region=3, cost_us=52.0, chosen_us=8.0),
        Refused(node="pad_1", reason="no predicate takes Pad"),
        OutPriced(region=6, cost_us=52.0, chosen_us=8.0),
        Refused(node="matmul_0", reason="no predicate takes MatMul"),
    ]
    assert Refused(node="add_0", reason="cutlass.dense_bias: conv_0 is Conv, not MatMul") in result.why_not("cutlass")
    assert [reason.node for reason in result.why_not("cudnn") if isinstance(reason, Refused)] == [
        name for _, names, _ in KERNELS for name in names if not name.startswith("conv")
    ]


def _hash(model: onnx_ir.Model) -> str:
    graph = DataflowGraph(model)
    return structural_hash(graph, graph.all_mask)
