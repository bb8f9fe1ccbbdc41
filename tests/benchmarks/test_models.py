"""Every model of the suite is valid, deterministic, alive, and means the same in both runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.judge.inputs import beside, read
from benchmarks.judge.statistics import disagreement
from benchmarks.models import MODELS
from benchmarks.models.__main__ import main
from benchmarks.models.entry import Entry
from benchmarks.models.graph import GraphWriter
from benchmarks.models.weights import fill, is_declared

TOLERANCE = 1e-4
BOTH_RUNTIMES = [name for name, entry in MODELS.items() if not entry.rejected_by]


def sized(names: list[str]) -> list[Any]:
    """Parameters with the large models marked slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] if MODELS[name].large else []) for name in names]


def run_onnxruntime(model: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))


def run_openvino(model: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    read_model = core.read_model(model)
    read_model.reshape({name: list(array.shape) for name, array in inputs.items()})
    compiled = core.compile_model(read_model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = compiled(inputs)
    return {port.get_any_name(): np.array(result[port]) for port in compiled.outputs}


@pytest.mark.parametrize("name", sized(list(MODELS)))
def test_a_model_is_valid_deterministic_and_tells_inputs_apart(name: str) -> None:
    entry = MODELS[name]
    model = entry.build(seed=0)
    data = model.SerializeToString(deterministic=True)

    onnx.checker.check_model(model, full_check=True)
    assert data == entry.build(seed=0).SerializeToString(deterministic=True)
    assert not [tensor.name for tensor in model.graph.initializer if is_declared(tensor)]
    one = run_onnxruntime(data, entry.make_inputs(0))
    other = run_onnxruntime(data, entry.make_inputs(1))
    assert all(np.isfinite(value).all() for value in one.values())
    assert disagreement(one, other) > 0.01
    assert not saturated(one)


def saturated(outputs: dict[str, np.ndarray]) -> bool:
    """Whether a distribution over classes is all on one of them, or an output is constant."""
    for value in outputs.values():
        flat = value.reshape(-1)
        if value.dtype.kind == "f" and (np.ptp(flat) == 0 or (flat.min() >= 0 and flat.max() > 0.999 * flat.sum())):
            return True
    return False


@pytest.mark.parametrize("name", sized(BOTH_RUNTIMES))
def test_both_runtimes_agree_on_a_model(name: str) -> None:
    data = MODELS[name].build(seed=0).SerializeToString()
    inputs = MODELS[name].make_inputs(0)

    assert disagreement(run_onnxruntime(data, inputs), run_openvino(data, inputs)) < TOLERANCE


def test_openvino_refuses_the_efficientnet_for_its_pooling() -> None:
    entry = MODELS["efficientnet_b0"]

    with pytest.raises(RuntimeError, match="AveragePool"):
        run_openvino(entry.build().SerializeToString(), entry.make_inputs())


def test_mobilenet_is_as_noisy_as_the_exporter_left_it() -> None:
    model = MODELS["mobilenet_v2"].build()

    assert len(model.graph.node) == 1093
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_the_segmenter_ends_with_argmax_over_its_upsampled_logits() -> None:
    nodes = MODELS["segmenter"].build().graph.node

    assert [node.op_type for node in nodes[-2:]] == ["Resize", "ArgMax"]


def test_seeds_give_other_weights_and_other_inputs() -> None:
    entry = MODELS["mnist"]

    assert entry.build(0) != entry.build(1)
    assert disagreement(entry.make_inputs(0), entry.make_inputs(1)) > 0


def test_channels_of_a_weight_differ() -> None:
    model = MODELS["mnist"].build()
    weight = next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "conv_weight_1")

    norms = np.linalg.norm(weight.reshape(weight.shape[0], -1), axis=1)
    assert len(np.unique(norms.round(4))) == weight.shape[0]


def test_a_weight_that_nothing_uses_is_refused() -> None:
    g = GraphWriter("unused")
    g.weight("spare", 3, 3)
    model = g.model(g.op("Relu", g.input("x", [1, 3])))

    with pytest.raises(ValueError, match="spare_0"):
        fill(model, seed=0)


def test_a_weight_without_a_rule_names_its_node() -> None:
    g = GraphWriter("strange")
    model = g.model(g.op("Pow", g.input("x", [1, 3]), g.weight("exponent", 3)))

    with pytest.raises(ValueError, match=r"input 1 of Pow node 'pow_0'"):
        fill(model, seed=0)


def test_the_command_writes_a_model_and_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mnist", "--out", str(tmp_path)]) == 0

    path = tmp_path / "mnist.onnx"
    assert path.read_bytes() == MODELS["mnist"].build().SerializeToString(deterministic=True)
    assert read(beside(path)).keys() == {"image"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mnist.inputs.npz", "mnist.onnx"]
    assert "13 nodes" in capsys.readouterr().out


def test_the_list_shows_the_shapes_to_bind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(MODELS)
    assert any("mobilenet_v2" in line and "pixel_values:[1,3,224,224]" in line for line in lines)


def test_an_entry_says_its_name_once() -> None:
    assert all(name == entry.name and isinstance(entry, Entry) for name, entry in MODELS.items())
