"""Parts of a plan are models that run, and give out what kernels read and write."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.build.plan_parts import apart, made_by, with_values_between
from collage.prepare.steps import prepare
from collage.reference.plugin import ReferencePlugin
from collage.runtime import loader
from collage.runtime.executable import Executable
from collage.runtime.session import Session
from collage_core.contract import Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry
from collage_testing.graphs import GraphBuilder
from tests.core.candidates.making import kernel

REFERENCE = Target(toolchain="reference", fingerprint="onnx")
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
SUM = X + 1


@pytest.fixture
def partitioned() -> onnx_ir.Model:
    """`add_0`, a view of its sum, then `neg_0` and `tanh_0` of that."""
    g = GraphBuilder()
    total = g.op("Add", g.input("x", 2, 3), g.constant("one", np.ones((2, 3), np.float32)))
    flat = g.op("Reshape", total, g.constant("shape", np.array([6])))
    model = g.model(g.op("Tanh", g.op("Neg", flat)))
    graph = DataflowGraph(prepare(model))
    kernels = tuple(kernel(graph, REFERENCE, name) for name in ("add_0", "neg_0", "tanh_0"))
    return apply_partitioning(Partitioning(graph, kernels))


def run(model: onnx_ir.Model, **feeds: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    artifacts = {}
    for site in call_sites(model):
        [artifacts[site.name]] = ReferencePlugin().collage_lower(site.kernel_function())
    targets = dict.fromkeys(artifacts, REFERENCE)
    load = loader(Registry.discover())
    session = Session(Executable.build(model, artifacts, targets, load, threads=1))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def test_a_plan_gives_out_the_values_between_its_kernels(partitioned: onnx_ir.Model) -> None:
    made = run(with_values_between(partitioned), x=X)

    assert set(made) == {"add_0", "reshape_0", "neg_0", "tanh_0"}
    np.testing.assert_array_equal(made["add_0"], SUM)
    np.testing.assert_array_equal(made["reshape_0"], SUM.reshape(6))
    np.testing.assert_allclose(made["tanh_0"], np.tanh(-SUM.reshape(6)), rtol=1e-6)


def test_a_plan_stops_before_a_kernel_and_gives_out_what_that_reads(partitioned: onnx_ir.Model) -> None:
    made = run(with_values_between(partitioned, before="k0001"), x=X)

    assert set(made) == {"add_0", "reshape_0"}


def test_kernels_apart_are_given_what_they_read(partitioned: onnx_ir.Model) -> None:
    other = np.arange(6, dtype=np.float32)

    made = run(apart(partitioned, ["k0001", "k0002"]), reshape_0=other, neg_0=other / 6)

    assert set(made) == {made_by("k0001", "neg_0"), made_by("k0002", "tanh_0")}
    np.testing.assert_array_equal(made[made_by("k0001", "neg_0")], -other)
    np.testing.assert_allclose(made[made_by("k0002", "tanh_0")], np.tanh(other / 6), rtol=1e-6)


def test_the_plan_itself_stays_as_it_is(partitioned: onnx_ir.Model) -> None:
    before = [value.name for node in partitioned.graph for value in (*node.inputs, *node.outputs) if value]

    with_values_between(partitioned, before="k0002")
    apart(partitioned, ["k0001"])

    assert [value.name for node in partitioned.graph for value in (*node.inputs, *node.outputs) if value] == before
