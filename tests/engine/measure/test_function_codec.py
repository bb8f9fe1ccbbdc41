from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir
import pytest

from collage.errors import WireError
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder, decode_function
from collage_core.contract import KernelFunction
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes


def _graph() -> DataflowGraph:
    model = onnx_ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 1024] x) => (float[4, 1024] z) { a = Add(x, big)  y = Mul(a, big2)  z = Add(y, small) }"""
    )
    for name, size in (("big", 1024), ("big2", 1024), ("small", 1)):
        value = next(v for node in model.graph for v in node.inputs if v is not None and v.name == name)
        value.const_value = onnx_ir.tensor(np.full(size, 0.5, np.float32), name=name)
        model.graph.initializers[name] = value
    for node in model.graph:
        for value in node.outputs:
            value.dtype, value.shape = onnx_ir.DataType.FLOAT, onnx_ir.Shape([4, 1024])
    return DataflowGraph(model)


def _function() -> KernelFunction:
    graph = _graph()
    return kernel_function(SubGraph(graph, graph.all_mask), "k0")


def test_a_function_survives_and_its_weights_are_mapped(tmp_path: Path) -> None:
    store, function = BlobStore(tmp_path), _function()

    wire = FunctionEncoder(store).encode(function)
    back = decode_function(wire, store)

    assert back.inputs == function.inputs
    assert back.outputs == function.outputs
    assert dict(back.constants) == dict(function.constants)
    assert [node.op_type for node in back.model.graph] == ["Add", "Mul", "Add"]
    tensors = {name: value.const_value for name, value in back.model.graph.initializers.items()}
    kinds = [isinstance(tensors[name], onnx_ir.ExternalTensor) for name in function.model.graph.initializers]
    assert kinds == [True, True, False]
    for name in function.constants:
        np.testing.assert_array_equal(back.constant(name), function.constant(name))


def test_equal_weights_are_one_blob_and_the_function_is_left_alone(tmp_path: Path) -> None:
    store, function = BlobStore(tmp_path), _function()

    wire = FunctionEncoder(store).encode(function)

    assert len(wire.weights) == 1
    assert not any(
        isinstance(value.const_value, onnx_ir.ExternalTensor) for value in function.model.graph.initializers.values()
    )


def test_a_weight_is_written_once_in_a_run(tmp_path: Path) -> None:
    store, function = BlobStore(tmp_path), _function()
    encoder = FunctionEncoder(store)
    wire = encoder.encode(function)
    store.path(wire.weights[0]).unlink()

    encoder.encode(function)

    assert wire.weights[0] not in store


def test_a_plugin_can_serialize_what_it_gets(tmp_path: Path) -> None:
    store, function = BlobStore(tmp_path / "blobs"), _function()
    back = decode_function(FunctionEncoder(store).encode(function), store)

    whole = model_from_bytes(model_to_bytes(back.model))
    onnx_ir.save(back.model, tmp_path / "saved.onnx", external_data="saved.data")

    saved = onnx_ir.load(tmp_path / "saved.onnx")
    for model in (whole, saved):
        [big, *_] = model.graph.initializers.values()
        assert big.const_value is not None
        assert float(big.const_value.numpy()[0]) == 0.5


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    wire = FunctionEncoder(store).encode(_function())
    store.path(wire.weights[0]).unlink()

    with pytest.raises(WireError, match=wire.weights[0]):
        decode_function(wire, store)
