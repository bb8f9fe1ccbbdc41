from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

from collage.reference.plugin import ReferenceKernel
from collage_core.contract import Buffer, Host, Joins, KernelFunction
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_core.registry import Toolchain, load_toolchain
from collage_testing import GraphBuilder, diamond, mnist, operator_models
from collage_testing.kit import check_plugin

HOST = Host(system="Mock mock", cpu="mock", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def reference() -> Toolchain:
    return load_toolchain("reference")


@pytest.mark.slow
def test_it_keeps_the_contract_on_every_operator(reference: Toolchain) -> None:
    conformance = check_plugin(reference, operator_models())

    assert set(conformance.ran) == set(operator_models())
    assert not conformance.refused


def test_it_runs_whole_models_operator_by_operator(reference: Toolchain) -> None:
    conformance = check_plugin(reference, {"mnist": mnist(), "diamond": diamond()})

    assert conformance.ran == {"mnist": 12, "diamond": 4}  # the Reshape is host work


def test_its_one_target_takes_single_operators_on_the_cpu(reference: Toolchain) -> None:
    targets = reference.targets(HOST)

    assert isinstance(targets, tuple)
    [target] = targets
    assert (target.name, target.device, target.joins, target.exact) == ("reference", "cpu", Joins.NONE, True)
    assert target.fingerprint.startswith("onnx ")


def test_a_domain_it_does_not_know_is_refused_with_the_reason(reference: Toolchain) -> None:
    g = GraphBuilder()
    model = g.model(g.op("FusedGemm", g.input("x", 2, 2), domain="com.microsoft"))
    targets = reference.targets(HOST)
    assert isinstance(targets, tuple)
    predicate = reference.pattern_table(targets[0]).predicates["*"]

    answer = predicate(NodeContext(DataflowGraph(model), 0))

    assert not answer
    assert "'com.microsoft'" in answer.reason


def test_it_brings_no_opinion_and_no_clock_of_its_own(reference: Toolchain) -> None:
    graph = DataflowGraph(diamond())
    whole: KernelFunction = kernel_function(SubGraph(graph, graph.all_mask), "model")
    targets = reference.targets(HOST)

    assert isinstance(targets, tuple)
    assert reference.query(targets[0], whole) is None
    assert not reference.implements("collage_measure")


def test_what_it_leaves_in_a_foreign_place_is_its_own() -> None:
    model = onnx_ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (seq(float[2]) s) => (seq(float[2]) y) { y = Identity(s) }'
    )
    graph = DataflowGraph(model)
    given, made = (Buffer(graph.spec(value)) for value in (model.graph.inputs[0], model.graph.outputs[0]))
    held = np.ones(2, np.float32)
    given.put([held])

    ReferenceKernel(model).bind([given], [made], None)()
    held[:] = 7

    [value] = made.value
    np.testing.assert_array_equal(value, [1, 1])
