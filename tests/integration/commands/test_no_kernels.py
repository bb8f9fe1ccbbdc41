"""Models and outputs for which there is nothing to compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import CliRunner

from collage.cli import main
from collage.commands.load import load
from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage_core.ir.io.model_io import save_model
from collage_testing.graphs import GraphBuilder
from tests.integration.commands.conftest import TINY


def test_a_model_of_views_only_is_packaged_without_a_kernel(tmp_path: Path) -> None:
    g = GraphBuilder("views")
    save_model(g.model(g.op("Reshape", g.input("x", 2, 4), g.ints(8))), tmp_path / "views.onnx")

    optimized = optimize(tmp_path / "views.onnx", OptimizeOptions(toolchains="reference", tuning_db="memory:", **TINY))
    optimized.save(tmp_path / "views.collage")

    assert optimized.record.regions == ()
    [y] = load(tmp_path / "views.collage").run(None, {"x": np.arange(8, dtype=np.float32).reshape(2, 4)})
    np.testing.assert_array_equal(y, np.arange(8))
    for command in (["explain"], ["compare", str(tmp_path / "views.onnx")]):
        result = CliRunner().invoke(main, [*command, str(tmp_path / "views.collage")])
        assert result.exit_code == 0, result.stderr


def test_an_output_that_is_constant_needs_no_toolchain(tmp_path: Path) -> None:
    """OpenVINO computes what varies; the rest is in the package."""
    g = GraphBuilder("constant")
    x = g.input("x", 2, 4)
    model = g.model(g.op("Relu", x), g.op("Shape", x), g.op("Neg", g.constant("c", np.array([1, 2], np.float32))))
    save_model(model, tmp_path / "constant.onnx")

    options = OptimizeOptions(toolchains="openvino", tuning_db="memory:", **TINY)
    optimized = optimize(tmp_path / "constant.onnx", options)
    optimized.save(tmp_path / "constant.collage")

    assert [region.nodes for region in optimized.record.regions] == [("relu_0",)]
    session = load(tmp_path / "constant.collage")
    values = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    for _ in range(2):
        y, shape, negated = session.run(None, {"x": values})
        np.testing.assert_array_equal(y, np.maximum(values, 0))
        np.testing.assert_array_equal(shape, [2, 4])
        np.testing.assert_array_equal(negated, [-1, -2])
        shape += 1  # the caller's own
        negated += 1
