"""An artifact may be anybody's: a session of it reads no file and no memory but what it is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_core.contract import Artifact, Target, Unsupported
from collage_onnxruntime.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

TARGET = Target(toolchain="onnxruntime", fingerprint="t")
WEIGHT = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)


@pytest.fixture
def subject() -> WrittenFunction:
    text = "g (float[3,8] x) => (float[3,40] y) { a = MatMul(x, w) y = Add(a, b) }"
    return written(text, {"w": WEIGHT, "b": WEIGHT[0]})


def point(tensor: onnx.TensorProto, location: str, offset: int = 0) -> None:
    for field in ("raw_data", "float_data", "external_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", "160")):
        tensor.external_data.add(key=key, value=value)


def inside(model: onnx.ModelProto) -> onnx.TensorProto:
    """The weight that the model holds."""
    return next(each for each in model.graph.initializer if each.data_location != onnx.TensorProto.EXTERNAL)


def outside(model: onnx.ModelProto) -> onnx.TensorProto:
    """The weight that is supplied to the session."""
    return next(each for each in model.graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL)


def twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.add().CopyFrom(outside(model))


def in_a_constant(model: onnx.ModelProto) -> None:
    tensor = inside(model)
    node = model.graph.node.add(op_type="Constant", output=[tensor.name])
    attribute = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(tensor)
    model.graph.initializer.remove(tensor)
    point(attribute.t, "secret")


HOSTILE: dict[str, Callable[[onnx.ModelProto], None]] = {
    "a file of the working directory": lambda model: point(inside(model), "secret"),
    "an absolute path": lambda model: point(inside(model), "/etc/passwd"),
    "a path out of the folder": lambda model: point(inside(model), "../secret"),
    "the file that large weights are said to be in": lambda model: point(inside(model), "weights.bin"),
    "an address in memory": lambda model: point(inside(model), "*/_ORT_MEM_ADDR_/*", 4096),
    "a supplied weight, from another file": lambda model: point(outside(model), "secret"),
    "a supplied weight, said twice": twice,
    "a constant's value": in_a_constant,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_model_that_reads_elsewhere_is_refused(
    kind: str, subject: WrittenFunction, kernels: HostKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret", "weights.bin"):
        (tmp_path / name).write_bytes(bytes(8192))
    [artifact] = kernels.lowered(subject)
    model = onnx.ModelProto.FromString(artifact.files["model.onnx"])
    HOSTILE[kind](model)
    hostile = dataclasses.replace(artifact, files={**artifact.files, "model.onnx": model.SerializeToString()})

    answer = plugin.collage_load(TARGET, hostile, kernels.run_context(subject))

    assert isinstance(answer, Unsupported)
    assert "which artifacts do not have" in answer.reason


def test_a_model_in_another_format_is_refused(subject: WrittenFunction, kernels: HostKernels) -> None:
    [artifact] = kernels.lowered(subject)
    other = dataclasses.replace(artifact, files={**artifact.files, "model.onnx": b"\x18\0\0\0ORTM" + bytes(64)})

    answer = plugin.collage_load(TARGET, other, kernels.run_context(subject))

    assert isinstance(answer, Unsupported)
    assert "its model cannot be read" in answer.reason


def test_the_artifact_itself_loads(subject: WrittenFunction, kernels: HostKernels) -> None:
    [artifact] = kernels.lowered(subject)
    assert isinstance(artifact, Artifact)

    assert not isinstance(plugin.collage_load(TARGET, artifact, kernels.run_context(subject)), Unsupported)
