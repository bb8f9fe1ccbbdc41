"""What ONNX's converter would get wrong stays as it is."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare

pytestmark = pytest.mark.guards("Scan of opset 8 (batches), which ONNX's converter gets wrong")


def test_scan_of_opset_8_keeps_its_batch_and_so_its_opset() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 8]>
        g (float[2, 1] s, float[2, 3, 1] x) => (float[2, 1] y, float[2, 3, 1] z) {
          y, z = Scan("", s, x) <num_scan_inputs = 1, body = b (float[1] a, float[1] n) => (float[1] t, float[1] o) {
            t = Add(a, n)
            o = Identity(t)
          }>
        }"""

    prepared = prepare(ir.serde.deserialize_model(onnx.parser.parse_model(text)))

    assert prepared.opset_imports[""] == 8
    assert [len(node.inputs) for node in prepared.graph] == [3]
