"""Shapes where sizes vary: what inference finds, and what preparing makes of it, against static preparation."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.models.varying import VARYING
from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import input_shapes, shape_at
from collage_core.ir.values.tensor_spec import ValueKind
from tests.engine.prepare.preparing import operators, parse

MASK = """
g (int64[1, n] ids, int64[1, 512] places) => (int64[1, 1, n, n] y)
  <int64[1] zero = {0}, int64[1] one = {1}, int64 first = {1}, int64[2] before = {1, 2}, int64[2] around = {1, 3}> {
  s = Shape(ids)
  length = Gather(s, first)
  ends = Unsqueeze(length, zero)
  own = Slice(places, zero, ends, one)
  rows = Unsqueeze(own, before)
  columns = Unsqueeze(own, around)
  y = Add(rows, columns)
}"""


def test_a_mask_sliced_to_the_length_has_its_size() -> None:
    """ONNX's own inference gives the slice symbols of its own."""
    places = np.arange(512, dtype=np.int64)[None]
    prepared = prepare(parse(MASK), input_shapes={"ids": (1, SizeRange(1, 512, 100))})

    graph = DataflowGraph(prepared)
    assert all(graph.spec(value).has_known_shape for node in graph.nodes for value in node.outputs)
    assert graph.spec(graph.nodes[-1].outputs[0]).kind is ValueKind.SIZED
    for length in (1, 9, 512):
        [right] = [np.arange(length)[None, None, None, :] + np.arange(length)[None, None, :, None]]
        made = evaluate(prepared, {"ids": np.zeros((1, length), np.int64), "places": places}).values["y"]
        np.testing.assert_array_equal(made, right)


def test_what_is_the_same_for_every_size_is_a_constant() -> None:
    prepared = prepare(
        parse("""
        g (float[2, n] x) => (float[2, n] y) <int64 zero = {0}> {
          s = Shape(x)
          rows = Gather(s, zero)
          f = Cast <to = 1> (rows)
          y = Div(x, f)
        }"""),
        input_shapes={"x": (2, SizeRange(1, 9, 3))},
    )

    assert operators(prepared) == ["Div"]


@pytest.mark.parametrize(
    ("name", "shapes", "sizes"),
    [
        (
            "bert_base_6_dynamic",
            {"input_ids": (1, SizeRange(1, 512, 90))},
            [{"sequence": 1}, {"sequence": 37}, {"sequence": 512}],
        ),
        (
            "fcos_detector",
            {"image": (1, 3, SizeRange(320, 640, 480), SizeRange(320, 640, 480))},
            [{"height": 320, "width": 640}, {"height": 352, "width": 352}],
        ),
    ],
)
def test_shapes_of_real_models_are_those_of_static_preparation(
    name: str, shapes: dict[str, tuple[int | SizeRange, ...]], sizes: list[dict[str, int]]
) -> None:
    model = ir.from_proto(VARYING[name].skeleton())
    symbolic = prepare(model, input_shapes=shapes)
    by_name = {value.name: value for node in symbolic.graph for value in node.outputs}

    for each in sizes:
        static = {key: tuple(each.get(str(d), d) for d in _dims(symbolic, key)) for key in _inputs(symbolic)}
        prepared = prepare(model, input_shapes={key: tuple(map(int, shape)) for key, shape in static.items()})
        compared = 0
        for node in prepared.graph:
            for value in node.outputs:
                other = by_name.get(value.name)
                if other is None or other.shape is None or value.shape is None or not value.shape.is_static():
                    continue
                found = shape_at(other.shape, each)
                compared += found is not None
                assert found in (None, tuple(value.shape.numpy())), value.name
        assert compared > 0.9 * len(list(prepared.graph))


def _inputs(model: ir.Model) -> list[str]:
    return [str(value.name) for value in model.graph.inputs]


def _dims(model: ir.Model, name: str) -> list[int | str]:
    [value] = [each for each in model.graph.inputs if each.name == name]
    assert value.shape is not None
    return [dim if isinstance(dim, int) else str(dim.value) for dim in value.shape]


def test_what_others_noted_of_values_is_not_believed() -> None:
    """A model may carry what inference found for other sizes."""
    model = parse("g (float[n] x) => (int64[1] y) { s = Shape(x)  y = Neg(s) }")
    for node in model.graph:
        node.outputs[0].metadata_props["pkg.onnx_shape_inference.sym_data"] = "[77]"

    prepared = prepare(model, input_shapes={"x": (5,)})

    np.testing.assert_array_equal(evaluate(prepared, {"x": np.ones(5, np.float32)}).values["y"], [-5])


def test_a_prepared_model_keeps_its_ranges_unless_others_are_given() -> None:
    sizes = SizeRange(1, 9, 3)
    prepared = prepare(
        parse("g (float[n] x, float[n] b) => (float[n] y) { y = Add(x, b) }"), input_shapes={"x": (sizes,)}
    )

    assert input_shapes(prepared) == {"x": (sizes,), "b": (sizes,)}
    assert input_shapes(prepare(prepared)) == {"x": (sizes,), "b": (sizes,)}
    assert input_shapes(prepare(prepared, input_shapes={"b": (4,)})) == {"x": (4,), "b": (4,)}
    other = SizeRange(2, 5, 2)
    assert input_shapes(prepare(prepared, input_shapes={"b": (other,)})) == {"x": (other,), "b": (other,)}
