from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage_core.errors import ExternalDataError, ModelFileError
from collage_core.ir.io import model_io
from collage_core.ir.io.model_io import (
    bring_inside,
    external_tensors,
    load_model,
    model_from_bytes,
    model_to_bytes,
    save_model,
)


def linear_model(weight: np.ndarray) -> onnx.ModelProto:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, weight.shape[0]])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, weight.shape[1]])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


WEIGHT = np.arange(4096, dtype=np.float32).reshape(64, 64)


def weight_of(model: ir.Model) -> np.ndarray:
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    return tensor.numpy()


def saved_with_external_data(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save_model(
        linear_model(WEIGHT), path, save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip
    return path


def test_a_saved_model_loads_as_it_was(tmp_path: Path) -> None:
    model = model_from_bytes(linear_model(WEIGHT).SerializeToString())

    save_model(model, tmp_path / "model.onnx")
    again = load_model(tmp_path / "model.onnx")

    assert [node.name for node in again.graph] == ["product"]
    np.testing.assert_array_equal(weight_of(again), WEIGHT)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_external_data_is_found_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved_with_external_data(tmp_path)

    model = load_model(path)
    monkeypatch.chdir("/")

    np.testing.assert_array_equal(weight_of(model), WEIGHT)


def test_bytes_hold_weights_that_were_external(tmp_path: Path) -> None:
    model = load_model(saved_with_external_data(tmp_path))

    again = model_from_bytes(model_to_bytes(model))

    np.testing.assert_array_equal(weight_of(again), WEIGHT)


def test_missing_external_data_is_one_clear_error(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path)
    (tmp_path / "weights.bin").unlink()

    with pytest.raises(ExternalDataError, match="does not exist") as caught:
        load_model(path)

    assert (caught.value.tensor, caught.value.location) == ("w", "weights.bin")


def test_truncated_external_data_is_noticed_at_load(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)

    with pytest.raises(ExternalDataError, match="100 bytes"):
        load_model(path)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    proto = linear_model(WEIGHT)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())

    with pytest.raises(ExternalDataError, match="outside"):
        load_model(tmp_path / "model.onnx")


def test_bytes_that_need_external_data_are_refused(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path)

    with pytest.raises(ExternalDataError, match="must hold its weights"):
        model_from_bytes(path.read_bytes())


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 64])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(ModelFileError):
        load_model(path)
    with pytest.raises(ModelFileError):
        model_from_bytes(content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file") as caught:
        load_model(tmp_path / "none.onnx")

    assert caught.value.source.endswith("none.onnx")


def test_large_weights_go_to_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_io, "EXTERNAL_THRESHOLD_BYTES", 1000)
    model = model_from_bytes(linear_model(WEIGHT).SerializeToString())

    save_model(model, tmp_path / "big.onnx")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.onnx", "big.onnx.data"]
    np.testing.assert_array_equal(weight_of(load_model(tmp_path / "big.onnx")), WEIGHT)
    onnx.checker.check_model(str(tmp_path / "big.onnx"))


def test_saving_over_a_model_keeps_it_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_io, "EXTERNAL_THRESHOLD_BYTES", 1000)
    path = tmp_path / "big.onnx"
    save_model(model_from_bytes(linear_model(WEIGHT).SerializeToString()), path)
    first = load_model(path)
    np.testing.assert_array_equal(weight_of(first), WEIGHT)

    save_model(model_from_bytes(linear_model(-WEIGHT).SerializeToString()), path)

    np.testing.assert_array_equal(weight_of(first), WEIGHT)
    np.testing.assert_array_equal(weight_of(load_model(path)), -WEIGHT)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    save_model(model_from_bytes(linear_model(WEIGHT).SerializeToString()), path)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ModelFileError, match="No space left"):
        save_model(model_from_bytes(linear_model(-WEIGHT).SerializeToString()), path)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.guards(
    "small weights, weights of bodies and constants in another file", "read when the model is prepared", area="input"
)
def test_only_large_weights_of_the_main_graph_may_stay_in_another_file(tmp_path: Path) -> None:
    body = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[64,64] x) => (float[64,64] y) {
          y = If(c) <then_branch = t () => (float[64,64] a) { a = Add(x, v) },
            else_branch = e () => (float[64,64] b) { b = Mul(x, s) }>
          }""")
    weight = onnx.numpy_helper.from_array(WEIGHT, "v")
    body.graph.node[0].attribute[0].g.initializer.append(weight)
    body.graph.initializer.extend(
        [onnx.numpy_helper.from_array(WEIGHT[:1], "s"), onnx.numpy_helper.from_array(WEIGHT, "w")]
    )
    body.graph.node.append(onnx.helper.make_node("Constant", [], ["k"], value=onnx.numpy_helper.from_array(WEIGHT)))
    body.graph.node.append(onnx.helper.make_node("MatMul", ["k", "w"], ["z"]))
    body.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [64, 64]))
    path = tmp_path / "model.onnx"
    onnx.save_model(body, path, save_as_external_data=True, location="weights.bin", size_threshold=0,
                    convert_attribute=True)  # fmt: skip
    model = load_model(path)
    outside = {tensor.name for tensor in external_tensors(model)}

    bring_inside(model)

    assert len(outside) > 2
    assert [tensor.name for tensor in external_tensors(model)] == ["w"]
    bring_inside(model, up_to=WEIGHT.nbytes)
    assert list(external_tensors(model)) == []
    np.testing.assert_array_equal(weight_of(model), WEIGHT)
