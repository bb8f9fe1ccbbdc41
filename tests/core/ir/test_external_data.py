"""References to other files are found wherever a model can have a tensor."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx import helper

from collage_core.errors import ModelFileError
from collage_core.ir.io.external_data import ExternalReference, external_references


def outside(name: str = "w") -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    return tensor


def graph(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [])


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return helper.make_model(graph(*nodes))


def initializer() -> onnx.ModelProto:
    made = model()
    made.graph.initializer.append(outside())
    return made


def sparse() -> onnx.ModelProto:
    made = model()
    made.graph.sparse_initializer.add().values.CopyFrom(outside())
    return made


def indices() -> onnx.ModelProto:
    made = model()
    made.graph.sparse_initializer.add().indices.CopyFrom(outside())
    return made


def branch() -> onnx.ModelProto:
    body = graph()
    body.initializer.append(outside())
    return model(helper.make_node("If", ["c"], ["y"], then_branch=body))


def function() -> onnx.ModelProto:
    made = model()
    node = helper.make_node("Constant", [], ["y"], value=outside())
    made.functions.append(helper.make_function("d", "F", [], ["y"], [node], []))
    return made


def deep() -> onnx.ModelProto:
    inner = graph(helper.make_node("Constant", [], ["y"], value=outside()))
    for _ in range(5):
        inner = graph(helper.make_node("If", ["c"], ["y"], then_branch=inner))
    made = model()
    made.graph.CopyFrom(inner)
    return made


PLACES: dict[str, Callable[[], onnx.ModelProto]] = {
    "initializer": initializer,
    "values of a sparse initializer": sparse,
    "indices of a sparse initializer": indices,
    "attribute": lambda: model(helper.make_node("Constant", [], ["y"], value=outside())),
    "list of an attribute": lambda: model(helper.make_node("N", [], ["y"], domain="d", values=[outside()])),
    "initializer of a branch": branch,
    "function": function,
    "branch in a branch": deep,
}


@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_wherever_it_is(place: str) -> None:
    proto = PLACES[place]()

    [found] = external_references(proto.SerializeToString())

    assert found == ExternalReference(name="w", location="../secret", of_main_graph=place == "initializer")


def test_a_model_with_all_its_weights_inside_has_none() -> None:
    made = initializer()
    made.graph.initializer[0].ClearField("data_location")

    assert external_references(made.SerializeToString()) == []


@pytest.mark.parametrize("data", [b"", b"ORTM", b"\x00\x00\x00\x00ORTM" + bytes(64), b"no model"])
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(ModelFileError):
        external_references(data)
