"""Integers and booleans have to be exact where nothing of the function leaves them open."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from collage.reference.exact_values import exact_values
from collage.reference.judge import Judge

INPUTS = "float[2, 3] x, float[2, 3] w, int64[2, 3] i, bool[2, 3] b"


@pytest.mark.parametrize(
    ("output", "nodes", "exact"),
    [
        ("int64[2, 3] y", "y = Add(i, i)", True),
        ("bool[2, 3] y", "y = Xor(b, b)", True),
        ("bool[2, 3] y", "y = Less(x, w)", True),
        ("bool[3, 2] y", "t = Transpose(x) u = Transpose(w) y = Less(t, u)", True),
        ("bool[2, 3] y", "s = Add(x, w) y = Less(s, w)", False),
        ("bool[2, 3] y", "s = Add(x, w) l = Less(s, w) y = Not(l)", False),
        ("int64[2] y", "y = ArgMax<axis = 1, keepdims = 0>(x)", False),
        ("int64[2, 3] y", "y = Cast<to = 7>(x)", False),
        ("int64[2, 3] y", "y = Div(i, i)", False),
        ("float[2, 3] y", "y = Identity(x)", False),
        ("int64[2, 3] y", "y = other.Add(i, i)", False),
    ],
)
def test_integers_are_exact_behind_what_neither_rounds_nor_chooses(output: str, nodes: str, exact: bool) -> None:
    imports = '"" : 21, "other" : 1'
    model = ir.from_onnx_text(f"<ir_version: 10, opset_import: [{imports}]> g ({INPUTS}) => ({output}) {{ {nodes} }}")
    for node in model.graph:
        for value in node.outputs:
            value.dtype = value.dtype or (ir.DataType.BOOL if node.op_type == "Less" else ir.DataType.FLOAT)

    assert (model.graph.outputs[0] in exact_values(model.graph)) == exact


def test_one_element_in_ten_thousand_is_wrong_where_all_have_to_be_right() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[100, 100] i) => (int64[100, 100] y, int64[100, 100] d)'
        "{ y = Add(i, i) d = Div(i, i) }"
    )
    judge = Judge(model.graph, correct=True, relative=1e-3, mismatched=1e-3)
    right = np.arange(10_000).reshape(100, 100)
    wrong = right.copy()
    wrong[99, 99] += 1

    assert judge.verdict("y", wrong, right, None).problem == "1 of 10000 elements differ"
    assert judge.verdict("d", wrong, right, None).problem == ""
