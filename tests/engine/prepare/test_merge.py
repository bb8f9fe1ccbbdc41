"""Nodes that compute the same are one."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from collage.prepare.steps import prepare


def test_nodes_with_strings_in_their_attributes_are_merged_if_equal() -> None:
    text = onnx.helper.make_tensor("values_tensor", onnx.TensorProto.STRING, [2], [b"a", b"bc"])
    keys = onnx.helper.make_tensor("keys_tensor", onnx.TensorProto.INT64, [2], [1, 2])
    nodes = [
        onnx.helper.make_node("LabelEncoder", ["x"], [name], domain="ai.onnx.ml", keys_tensor=keys, values_tensor=text)
        for name in ("a", "b")
    ]
    nodes.append(onnx.helper.make_node("StringConcat", ["a", "b"], ["y"]))
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [2])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, [2])],
    )
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    model = ir.serde.deserialize_model(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10))

    prepared = prepare(model)

    assert [node.op_type for node in prepared.graph] == ["LabelEncoder", "StringConcat"]
