"""Sparse constants are read as dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from collage_core.errors import ModelFileError
from collage_core.ir.io.model_io import model_from_bytes

pytestmark = pytest.mark.guards(
    "sparse weights and constants", "dense when read; impossible ones refused by name", area="input"
)

DENSE = np.array([[0, 2, 0], [0, 0, -1]], np.float32)


def sparse(indices: Any, *, shape: tuple[int, ...] = (2, 3), name: str = "w") -> onnx.SparseTensorProto:
    values = onnx.numpy_helper.from_array(np.array([2, -1], np.float32), name)
    return onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array(indices)), shape)


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }'
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["linear", "by axis"])
def test_a_sparse_weight_is_a_weight(indices: Any) -> None:
    proto = model()
    proto.graph.sparse_initializer.append(sparse(indices))

    weight = model_from_bytes(proto.SerializeToString()).graph.initializers["w"].const_value

    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), DENSE)


def test_a_sparse_constant_in_a_body_is_a_constant() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3] x, bool c) => (float[2,3] y) {
          y = If(c) <then_branch = t () => (float[2,3] a) { a = Neg(x) }, else_branch = e () => (float[2,3] b) {
            b = Identity(x) }>
        }""")
    body = proto.graph.node[0].attribute[0].g
    body.node.insert(0, onnx.helper.make_node("Constant", [], ["v"], sparse_value=sparse([1, 5], name="")))
    body.node[1].CopyFrom(onnx.helper.make_node("Add", ["x", "w"], ["a"]))
    body.sparse_initializer.append(sparse([1, 5]))

    read = model_from_bytes(proto.SerializeToString())

    graph = read.graph.node(0).attributes["then_branch"].as_graph()
    np.testing.assert_array_equal(graph.node(0).attributes["value"].as_tensor().numpy(), DENSE)
    assert "w" in graph.initializers


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (sparse([1, 6]), r"'w' of shape \[2, 3\] has elements outside of it"),
        (sparse([[0, 1], [2, 0]]), "has elements outside of it"),
        (sparse([[0, 1, 0], [1, 0, 0]]), "has elements outside of it"),
        (sparse([1, 5], shape=(1 << 40, 1 << 20)), "does not fit into this machine's memory"),
    ],
)
def test_an_impossible_one_is_refused_by_name(broken: onnx.SparseTensorProto, message: str) -> None:
    proto = model()
    proto.graph.sparse_initializer.append(broken)

    with pytest.raises(ModelFileError, match=message):
        model_from_bytes(proto.SerializeToString())
