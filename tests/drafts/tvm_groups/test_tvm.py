"""The TVM draft with TVM: groups compiled, sent as bytes, loaded without compiling, and right; on the CPU."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.driver.worker_pool import database_cache
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Built, Measured, Tolerance
from collage.measure.wire.values import encode_value
from collage.reference import evaluate
from collage.store import MemoryStore
from collage_core.contract import (
    Buffer,
    BuildContext,
    Joins,
    KernelFunction,
    Protocol,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder, operator_models
from collage_testing.kit import check_plugin
from collage_testing.kit.contexts import build_context
from tests.drafts.tvm_groups.operators import EXPRESSIONS
from tests.drafts.tvm_groups.plugin import plugin

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="apache-tvm is not installed")

ROOT = Path(__file__).parents[3]
TARGET = Target(toolchain="tvm", fingerprint="tvm 1", joins=Joins.NATIVE)


@pytest.fixture(scope="module", autouse=True)
def usable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)  # TVM imports it if it is there: seconds for nothing
        answer = plugin.collage_targets(this_host())
        if isinstance(answer, Unsupported):
            pytest.skip(answer.reason)
        yield


def residual(rows: int = 64, columns: int = 96) -> onnx_ir.Model:
    """A gated residual: a row and a scalar are added in, one value is read twice."""
    g = GraphBuilder("residual")
    x, z = g.input("x", rows, columns), g.input("z", rows, columns)
    gate = g.op("Sigmoid", g.op("Mul", x, g.constant("two", np.float32(2))))
    return g.model(g.op("Add", g.op("Mul", gate, g.op("Tanh", g.op("Add", z, g.weight("row", columns)))), x))


def whole(model: onnx_ir.Model) -> KernelFunction:
    graph = DataflowGraph(model)
    return kernel_function(SubGraph(graph, graph.all_mask), "group")


def every_operator() -> dict[str, onnx_ir.Model]:
    models = {}
    for operator in EXPRESSIONS:
        g = GraphBuilder(operator)
        x = g.input("x", 4, 40)
        if operator in ("Log", "Sqrt"):
            x = g.op("Abs", x)
        second = [g.weight("w", 40)] if operator in ("Add", "Div", "Mul", "Sub") else []
        models[operator] = g.model(g.op(operator, x, *second))
    return models


def test_it_keeps_the_contract() -> None:
    models = {**operator_models(), **every_operator(), "residual": residual(), "odd": residual(3, 7)}

    conformance = check_plugin(Toolchain("tvm", plugin), models, max_variants=3)

    assert {*every_operator(), "residual", "odd", "Exp of a scalar", "Mul of a value by itself"} <= set(conformance.ran)
    assert conformance.refused["Gemm"] == "no predicate takes Gemm"


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path, threads=2, effort=2, tuning_s=30, workspace_limit_bytes=0, max_variants=8)


def test_every_arrangement_gives_the_same_numbers(build: BuildContext, tmp_path: Path) -> None:
    model = residual(512, 256)  # large enough for two threads
    function = whole(model)
    draw = np.random.default_rng(0)
    feeds = {name: draw.standard_normal((512, 256)).astype(np.float32) for name in ("x", "z")}
    [expected] = [evaluate(model, feeds).values[str(value.name)] for value in model.graph.outputs]
    answer = plugin.collage_lower(function, build)
    assert not isinstance(answer, Unsupported)
    names = []
    for artifact in answer:
        weights = {content: function.constant(name) for name, content in function.constants.items()}
        kernel = plugin.collage_load(
            artifact, RunContext(threads=2, host=this_host(), constants=weights, scratch=tmp_path)
        )
        assert not isinstance(kernel, Unsupported), kernel.reason
        inputs, outputs = [Buffer(spec) for spec in function.inputs], [Buffer(spec) for spec in function.outputs]
        for buffer in inputs:
            buffer.put(feeds[buffer.spec.name])
        kernel.bind(inputs, outputs, None)()
        np.testing.assert_allclose(outputs[0].array, expected, rtol=1e-5, atol=1e-6)
        names.append(artifact.variant)

    assert len(names) == 6
    assert sum(name.endswith("x2") for name in names) == 3


def test_compiling_stops_when_the_time_for_it_is_over(build: BuildContext) -> None:
    answer = plugin.collage_lower(whole(residual()), dataclasses.replace(build, tuning_s=0.0))

    assert not isinstance(answer, Unsupported)
    assert len(list(answer)) == 1


def test_what_the_cache_holds_is_not_compiled_again(build: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    first = plugin.collage_lower(whole(residual()), build)
    assert not isinstance(first, Unsupported)
    made = list(itertools.islice(first, 2))
    import tvm

    monkeypatch.setattr(tvm, "compile", None)
    second = plugin.collage_lower(whole(residual()), dataclasses.replace(build, variant=made[1].variant))

    assert not isinstance(second, Unsupported)
    assert [each.files for each in second] == [made[1].files]


def test_a_worker_measures_every_arrangement_and_builds_the_fastest_again_from_its_cache(tmp_path: Path) -> None:
    function, store, kept = whole(residual()), BlobStore(tmp_path), MemoryStore()
    draw = np.random.default_rng(0)
    feeds = {spec.name: draw.standard_normal(spec.static_shape).astype(np.float32) for spec in function.inputs}
    expected = [evaluate(function.model, feeds).values[spec.name] for spec in function.outputs]
    source = PluginSource(toolchain="tvm", plugin="tests.drafts.tvm_groups.plugin:plugin", paths=(str(ROOT),))
    worker = Worker(source, store, cache=database_cache(kept))
    common: dict[str, Any] = {
        "target": TARGET,
        "function": FunctionEncoder(store).encode(function),
        "inputs": tuple(encode_value(feeds[spec.name], store) for spec in function.inputs),
        "expected": tuple(encode_value(value, store) for value in expected),
        "build": BuildSettings(threads=1, effort=2, max_variants=3),
        "tolerance": Tolerance(relative=1e-5),
        "deadline_s": 120.0,
    }
    try:
        measured = worker.measure(AskMeasure(protocol=Protocol(duration_s=0.02), **common))
        assert isinstance(measured, Measured), measured
        built = worker.build(AskBuild(variant=measured.variant, **common))
    finally:
        worker.close()

    assert isinstance(built, Built), built
    assert built.artifact.variant == measured.variant
    assert built.build_s < measured.build_s  # nothing was compiled
    assert measured.discarded == ()
