"""Integers and booleans have to be exact where nothing of the function leaves them open."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from collage.measure.wire.outcomes import Tolerance
from collage.measure.worker.exact_outputs import exact_outputs
from collage.measure.worker.guarded_memory import aligned_buffer
from collage.measure.worker.verdicts import judge
from collage_core.contract import TensorSpec

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

    assert exact_outputs(model.graph) == (frozenset({"y"}) if exact else frozenset())


def test_one_element_in_ten_thousand_is_wrong_where_all_have_to_be_right() -> None:
    right = np.arange(10_000).reshape(100, 100)
    buffer = aligned_buffer(TensorSpec(name="y", dtype=ir.DataType.INT64, shape=(100, 100)))
    buffer.put(right)
    buffer.array[99, 99] += 1

    assert judge([buffer], [right], Tolerance(), exact={"y"}) == "output 'y': 1 of 10000 elements differ"
    assert judge([buffer], [right], Tolerance(), exact={"z"}) == 0.0
