"""What cannot be made a model of is refused by name when it is read."""

from __future__ import annotations

import onnx
import pytest

from collage_core.errors import ModelFileError
from collage_core.ir.io.message_check import objection
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes
from collage_testing import mnist, random_model

pytestmark = [
    pytest.mark.guards(
        "weights and constants that hold fewer or more elements than their shape, have a negative extent, no "
        "element type, or one nobody knows"
    ),
    pytest.mark.guards(
        "tensors without an element type; attribute references outside functions; bodies by reference",
        "refused when the model is read",
        area="input",
    ),
]


def message(node: onnx.NodeProto) -> onnx.ModelProto:
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output]))


def test_nothing_is_objected_to_in_a_model() -> None:
    for model in (mnist(), *map(random_model, range(5))):
        assert objection(onnx.ModelProto.FromString(model_to_bytes(model))) == ""


def test_a_tensor_without_an_element_type_is_named() -> None:
    node = onnx.helper.make_node("Constant", [], ["y"], name="c")
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=onnx.TensorProto(dims=[1]))

    with pytest.raises(ModelFileError, match=r"'value' of node 'c' \(Constant\) has no element type"):
        model_from_bytes(message(node).SerializeToString())


def test_a_weight_without_an_element_type_is_named() -> None:
    proto = message(onnx.helper.make_node("Neg", ["w"], ["y"]))
    proto.graph.initializer.add(name="w", dims=[1])

    with pytest.raises(ModelFileError, match="weight 'w' has no element type"):
        model_from_bytes(proto.SerializeToString())


def test_a_reference_outside_a_function_is_named() -> None:
    node = onnx.helper.make_node("Cast", ["x"], ["y"], name="c")
    node.attribute.add(name="to", type=onnx.AttributeProto.INT, ref_attr_name="given")

    with pytest.raises(ModelFileError, match=r"'to' of node 'c' .* 'given' of a function, but is in none"):
        model_from_bytes(message(node).SerializeToString())


def test_a_body_given_by_reference_is_refused() -> None:
    node = onnx.helper.make_node("If", ["c"], ["y"], name="choose")
    node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH, ref_attr_name="body")
    proto = message(onnx.helper.make_node("F", ["c"], ["y"], domain="local"))
    proto.functions.append(onnx.helper.make_function("local", "F", ["c"], ["y"], [node], [], ["body"]))

    with pytest.raises(ModelFileError, match="inline the function first"):
        model_from_bytes(proto.SerializeToString())


def test_a_weight_with_fewer_elements_than_its_shape_is_named() -> None:
    proto = message(onnx.helper.make_node("Neg", ["w"], ["y"]))
    proto.graph.initializer.add(name="w", dims=[1, 2**50], data_type=onnx.TensorProto.INT64, raw_data=bytes(8))

    with pytest.raises(ModelFileError, match="weight 'w' holds fewer elements"):
        model_from_bytes(proto.SerializeToString())
