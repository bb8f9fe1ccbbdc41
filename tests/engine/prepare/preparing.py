"""Models written as text, prepared, and held to the numbers they gave before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from collage.prepare.steps import prepare
from collage.reference import evaluate, relative_error


def parse(text: str, opset: int = 17) -> ir.Model:
    header = f'<ir_version: 8, opset_import: ["" : {opset}, "local" : 1, "custom" : 1]>\n'
    return ir.serde.deserialize_model(onnx.parser.parse_model(header + text))


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def feeds(model: ir.Model, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    result = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        array = random.standard_normal([int(dim) for dim in value.shape.numpy()])
        result[str(value.name)] = array.astype(value.dtype.numpy())
    return result


def assert_same_numbers(
    before: ir.Model, after: ir.Model, values: Mapping[str, Any] | None = None, limit: float = 1e-6
) -> None:
    inputs = dict(values or feeds(after))
    expected = evaluate(before, inputs).values
    actual = evaluate(after, inputs).values
    assert [o.name for o in after.graph.outputs] == [o.name for o in before.graph.outputs]
    for output in before.graph.outputs:
        assert relative_error(actual[str(output.name)], expected[str(output.name)]) <= limit


def assert_idempotent(model: ir.Model) -> None:
    again = prepare(model)
    assert ir.serde.serialize_model(again) == ir.serde.serialize_model(model)


def check(text: str, expected: Sequence[str], *, opset: int = 17, shapes: Mapping[str, Any] | None = None) -> ir.Model:
    model = parse(text, opset)
    prepared = prepare(model, input_shapes=shapes)
    assert operators(prepared) == list(expected)
    onnx.checker.check_model(ir.serde.serialize_model(prepared), full_check=True)
    assert_same_numbers(model, prepared)
    assert_idempotent(prepared)
    return prepared
