"""Models compiled at once: checked kernels of whoever is right, without a race."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.commands.compiler import Compiler
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.wire.outcomes import Built, Failed, Refused, Stage
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage_core.errors import CollageError
from collage_core.fusion import CandidateKernel
from collage_testing import GraphBuilder, dense

pytestmark = pytest.mark.plugins


@pytest.fixture(scope="module")
def toolchains() -> Iterator[Toolchains]:
    choices = SetupChoices(toolchains="onnxruntime,openvino,reference", tuning_db="memory:", threads=2)
    with Toolchains(choices) as toolchains:
        yield toolchains


def test_a_model_runs_on_its_inputs_and_on_others(toolchains: Toolchains) -> None:
    model = dense(activation="Relu")
    w, b = (initial.const_value.numpy() for initial in model.graph.initializers.values() if initial.const_value)
    first, second = np.random.default_rng(0).standard_normal((2, 4, 16)).astype(np.float32)

    compiled = Compiler(toolchains).compile(model, {"x": first})

    for x in (first, second):
        np.testing.assert_allclose(compiled.session.run(None, {"x": x})[0], np.maximum(x @ w + b, 0), atol=1e-5)
    assert compiled.unchecked == {}
    assert set(compiled.assembled.plan.toolchains) <= {"onnxruntime", "openvino"}


@pytest.mark.guards("a kernel right elsewhere is wrong with its own weights", "another toolchain gets it", area="input")
def test_what_cannot_be_built_for_its_own_weights_goes_to_another(
    toolchains: Toolchains, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = MeasuringCostSource.build
    failed: list[str] = []

    def build(
        source: MeasuringCostSource, kernel: CandidateKernel, *arguments: Any, **options: Any
    ) -> Built | Refused | Failed:
        if not failed or kernel.target.toolchain == failed[0]:
            failed.append(kernel.target.toolchain)
            return Failed(stage=Stage.CHECK, reason="wrong with these weights")
        return built(source, kernel, *arguments, **options)

    monkeypatch.setattr(MeasuringCostSource, "build", build)
    x = np.ones((4, 16), np.float32)

    compiled = Compiler(toolchains).compile(dense(), {"x": x})

    assert failed
    assert failed[0] not in compiled.assembled.plan.toolchains


def test_the_reference_gets_only_what_no_other_runs(toolchains: Toolchains) -> None:
    g = GraphBuilder()
    relu = g.op("Relu", g.input("x", 2, 3))
    string = g.op("Cast", relu, to=int(onnx_ir.DataType.STRING))
    matches = g.op("RegexFullMatch", string, pattern="[01](\\.0)?")
    x = np.array([[-1, 0, 1], [2, 1, -5]], np.float32)

    compiled = Compiler(toolchains).compile(g.model(matches), {"x": x})

    assert compiled.session.run(None, {"x": x})[0].tolist() == [[True, True, True], [False, True, True]]
    by_target = {each.target.toolchain: each.sub_graph.names for each in compiled.assembled.plan.kernels}
    assert "relu_0" not in by_target.get("reference", ())


def test_what_nobody_computes_is_one_error(toolchains: Toolchains) -> None:
    g = GraphBuilder()
    model = g.model(g.op("Unheard", g.op("Relu", g.input("x", 2)), domain="nowhere"))

    with pytest.raises(CollageError, match="Unheard"):
        Compiler(toolchains).compile(model, {"x": np.ones(2, np.float32)})
