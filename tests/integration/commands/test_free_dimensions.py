"""Models whose dimensions stay free: looked at and partitioned as they are, without any size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.commands.partition import partition
from tests.integration.commands.models import Arrays, cnn, reference
from tests.valid_json import valid

pytestmark = pytest.mark.plugins


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def batched_cnn(folder: Path) -> Path:
    """The CNN with a free batch."""
    model = cnn()
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.shape is not None
        value.shape = ir.Shape(["batch", *list(value.shape)[1:]])
    ir.save(model, folder / "cnn.onnx")
    return folder / "cnn.onnx"


def attention(folder: Path) -> Path:
    """Attention of two heads as exporters write it: targets of Reshape are computed from the shape of the input."""
    text = """
    < ir_version: 10, opset_import: ["": 17] >
    g (float[batch, tokens, 8] x) => (float[batch, tokens, 8] y)
      <float[8, 8] w, int64[1] two = {2}, int64[1] four = {4}, int64[1] all = {8}> {
      b = Shape <start = 0, end = 1> (x)
      t = Shape <start = 1, end = 2> (x)
      split = Concat <axis = 0> (b, t, two, four)
      joined = Concat <axis = 0> (b, t, all)
      q = MatMul(x, w)
      heads = Reshape(q, split)
      query = Transpose <perm = [0, 2, 1, 3]> (heads)
      key = Transpose <perm = [0, 2, 3, 1]> (heads)
      scores = MatMul(query, key)
      weights = Softmax(scores)
      mixed = MatMul(weights, query)
      back = Transpose <perm = [0, 2, 1, 3]> (mixed)
      merged = Reshape(back, joined)
      y = Add(merged, x)
    }"""
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, folder / "attention.onnx")
    return folder / "attention.onnx"


def x_of(*shape: int) -> Arrays:
    return {"x": np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)}


CASES: dict[str, tuple[Callable[[Path], Path], list[Arrays], str]] = {
    "cnn": (batched_cnn, [x_of(batch, 3, 16, 16) for batch in (1, 2, 5)], "x: float[batch,3,16,16]"),
    "attention": (attention, [x_of(1, 3, 8), x_of(2, 7, 8)], "x: float[batch,tokens,8]"),
}


@pytest.mark.guards(
    "a model with free dimensions, and no sizes given",
    "`inspect` and `partition` take it as it is; what runs a model says which input, dimension and flag",
    area="input",
)
@pytest.mark.parametrize("name", CASES)
def test_inspect_says_what_toolchains_take_for_any_size(name: str, tmp_path: Path) -> None:
    write, _, described = CASES[name]

    result = collage("inspect", write(tmp_path), "--toolchains", "onnxruntime,openvino", "--json", tmp_path / "i.json")

    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = valid("inspect", (tmp_path / "i.json").read_text())
    assert document["inputs"] == [described]
    assert "Shape" not in document["operators"], "targets of Reshape are constants"
    for target in document["targets"]:
        if target["target"] in ("onnxruntime", "openvino"):
            assert target["claimed_nodes"] == document["kernel_nodes"], target


@pytest.mark.parametrize("target", ["onnxruntime", "openvino", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_a_partitioned_model_runs_for_every_size(name: str, target: str, tmp_path: Path) -> None:
    write, samples, _ = CASES[name]
    path = write(tmp_path)

    result = collage("partition", path, "--for", target, "-o", tmp_path / "out.onnx")

    assert result.exit_code == 0, result.stderr
    onnx.checker.check_model(str(tmp_path / "out.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])
    for feeds in samples:
        [right] = reference(path, feeds).values()
        np.testing.assert_allclose(session.run(None, feeds)[0], right, rtol=1e-4, atol=1e-5)


def test_some_dimensions_can_be_bound_and_others_left(tmp_path: Path) -> None:
    path = attention(tmp_path)

    refused = collage("optimize", path, "-o", tmp_path / "no.collage")
    found = partition(path, "reference")

    assert refused.exit_code == 2
    assert "--input-shapes x:[N,N,8]" in " ".join(refused.stderr.split())
    assert str(found.model.graph.inputs[0].shape) == "[batch,tokens,8]"
    assert str(found.model.graph.outputs[0].shape) == "[batch,tokens,8]"
