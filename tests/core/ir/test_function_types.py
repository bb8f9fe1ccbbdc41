"""Inputs of functions keep their types and shapes across a file, as what nodes produce does."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def value(name: str, *shape: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=FLOAT)


def function(name: str, calls: str = "") -> ir.Function:
    """A function of two inputs that adds them, or has another function do it."""
    inputs = [ir.Value(name="a"), ir.Value(name="b")]
    node = ir.Node("here" if calls else "", calls or "Add", inputs)
    graph = ir.Graph(inputs, node.outputs, nodes=[node], name=name, opset_imports={"": 20, "here": 1})
    return ir.Function("here", name, graph=graph, attributes=[])


def model(calls: list[tuple[str, list[ir.Value | None]]], functions: list[ir.Function]) -> ir.Model:
    given = {each.name: each for _, values in calls for each in values if each is not None}
    nodes = [ir.Node("here", name, values) for name, values in calls]
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph(list(given.values()), outputs, nodes=nodes, name="main", opset_imports={"": 20, "here": 1})
    return ir.Model(graph, ir_version=10, functions=functions)


def read(written: ir.Model) -> dict[str, list[tuple[object, object]]]:
    again = model_from_bytes(model_to_bytes(written))
    return {each.name: [(it.type, it.shape) for it in each.inputs] for each in again.functions.values()}


def test_inputs_are_what_the_call_passes() -> None:
    x, bias = value("x", 2, 3), value("bias", 3)

    assert read(model([("added", [x, bias])], [function("added")])) == {"added": [(FLOAT, [2, 3]), (FLOAT, [3])]}


def test_a_function_passes_on_what_it_is_told() -> None:
    functions = [function("inner"), function("outer", calls="inner")]

    found = read(model([("outer", [value("x", 2, 3), value("bias", 3)])], functions))

    assert found["inner"] == found["outer"] == [(FLOAT, [2, 3]), (FLOAT, [3])]


def test_what_calls_do_not_agree_on_stays_unknown() -> None:
    bias = value("bias", 3)
    calls: list[tuple[str, list[ir.Value | None]]] = [
        ("added", [value("x", 2, 3), bias]),
        ("added", [value("y", 3), bias]),
    ]

    assert read(model(calls, [function("added")])) == {"added": [(FLOAT, None), (FLOAT, [3])]}


@pytest.mark.parametrize("last", [[], [None]])
def test_what_a_call_leaves_out_stays_unknown(last: list[ir.Value | None]) -> None:
    assert read(model([("added", [value("x", 3), *last])], [function("added")])) == {
        "added": [(FLOAT, [3]), (None, None)]
    }
