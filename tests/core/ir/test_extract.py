from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.ir.graph.canonical import Composite, structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import extract
from collage_core.ir.graph.masks import iterate_bits

Evaluate = Callable[..., list[Any]]
Parsed = Callable[..., onnx_ir.Model]
seeds = st.integers(0, 10_000)


def contiguous_parts(graph: DataflowGraph, rng: random.Random) -> list[int]:
    cuts = sorted({0, len(graph), *(rng.randrange(len(graph) + 1) for _ in range(3))})
    return [((1 << end) - 1) & ~((1 << start) - 1) for start, end in itertools.pairwise(cuts)]


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_running_the_parts_in_sequence_is_running_the_whole(
    random_model: Callable[..., onnx_ir.Model], evaluate: Evaluate, seed: int
) -> None:
    model = random_model(seed)
    graph = DataflowGraph(model)
    draw = np.random.default_rng(0)
    known = {name: draw.normal(size=(4, 4)).astype(np.float32) for name in ("x", "z")}
    expected = evaluate(model, known)

    for number, part in enumerate(contiguous_parts(graph, random.Random(seed))):
        extraction = extract(graph, part, name=f"part{number}")
        onnx.checker.check_model(onnx_ir.to_proto(extraction.model), full_check=True)
        feeds = {str(value.name): known[str(value.name)] for value in extraction.input_values}
        known.update(
            zip((str(v.name) for v in extraction.output_values), evaluate(extraction.model, feeds), strict=True)
        )

    for value, reference in zip(model.graph.outputs, expected, strict=True):
        np.testing.assert_array_equal(known[str(value.name)], reference)


def reordered_and_renamed(model: onnx_ir.Model, rng: random.Random) -> tuple[onnx_ir.Model, dict[str, str]]:
    """The same model with other names, its nodes in another topological order; new node name -> old one."""
    copy = model.clone()
    for number, node in enumerate(copy.graph):
        node.name = f"old{number}"
    nodes = list(copy.graph)
    ready: list[onnx_ir.Node] = []
    placed: set[onnx_ir.Node] = set()
    index = DataflowGraph(copy)
    needs = {node: {index.nodes[p] for p in iterate_bits(index.predecessors[i])} for i, node in enumerate(index.nodes)}
    while len(ready) < len(nodes):
        free = [node for node in nodes if node not in placed and needs[node] <= placed]
        ready.append(rng.choice(free))
        placed.add(ready[-1])
    copy.graph.remove(nodes)
    copy.graph.extend(ready)
    names = {}
    for number, node in enumerate(copy.graph):
        names[f"new{number}"] = str(node.name)
        node.name = f"new{number}"
        for slot, value in enumerate(node.outputs):
            if value.name:
                value.name = f"t{number}_{slot}"
    return copy, names


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_the_hash_does_not_see_names_or_the_order_of_nodes(
    random_model: Callable[..., onnx_ir.Model], seed: int
) -> None:
    rng = random.Random(seed)
    model = random_model(seed)
    for number, node in enumerate(model.graph):
        node.name = f"old{number}"
    other, names = reordered_and_renamed(model, rng)
    graph, other_graph = DataflowGraph(model), DataflowGraph(other)
    back = {old: new for new, old in names.items()}

    for _ in range(10):
        nodes = rng.randrange(1, 1 << len(graph))
        twin = 0
        for index in iterate_bits(nodes):
            twin |= 1 << other_graph.index_of(back[graph.names[index]])
        assert structural_hash(graph, nodes) == structural_hash(other_graph, twin)


BASE = """g (float[2,4] x) => (float[2,3] y)
<float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}> { h = MatMul(x, w) a = Add(h, b) y = Relu(a) }"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("Relu", "Tanh", id="operator"),
        pytest.param("y = Relu(a)", "y = LeakyRelu<alpha=0.5>(a)", id="attribute"),
        pytest.param("{1,2,3}", "{1,2,4}", id="small constant"),
        pytest.param("[2,", "[5,", id="shape"),
        pytest.param("Add(h, b)", "Add(b, h)", id="operand order"),
        pytest.param("(float[2,4] x)", "(float[2,4] x, float[4,3] w)", id="a weight that is an input"),
        pytest.param("=> (float[2,3] y)", "=> (float[2,3] y, float[2,3] h)", id="inside value that is an output"),
        pytest.param("float", "double", id="dtype"),
    ],
)
def test_the_hash_sees(parsed: Parsed, old: str, new: str) -> None:
    text = BASE.replace(old, new)
    if "x, float" in new:
        text = text.replace("float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, ", "")
    first, second = DataflowGraph(parsed(BASE)), DataflowGraph(parsed(text))

    assert structural_hash(first, first.all_mask) != structural_hash(second, second.all_mask)


def test_weights_enter_the_hash_by_shape_only() -> None:
    hashes = set()
    for scale in (1.0, 2.0):
        proto = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[2,8] x) => (float[2,9] y) { y = MatMul(x, w) }'
        )
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full((8, 9), scale, np.float32), "w"))
        graph = DataflowGraph(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
        hashes.add(structural_hash(graph, 1))

    assert len(hashes) == 1


def test_whether_an_output_leaves_the_graph_or_is_used_outside_does_not_matter(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[4] x) => (float[4] y) { a = Relu(x) b = Neg(a) c = Relu(b) y = Neg(c) }"))

    assert structural_hash(graph, 0b0011) == structural_hash(graph, 0b1100)


def test_a_body_is_compared_by_its_content_not_its_names(parsed: Parsed) -> None:
    def graph_with(constant: str, name: str) -> DataflowGraph:
        return DataflowGraph(
            parsed(
                f"""g (bool c, float[2] x) => (float[2] y) {{
            y = If(c) <then_branch = t () => (float[2] {name}) {{
                 k{name} = Constant<value = float[2] {{1.0, {constant}}}>() {name} = Add(x, k{name}) }},
                 else_branch = e () => (float[2] o) {{ o = Neg(x) }}> }}"""
            )
        )

    first, same, other = graph_with("2.0", "p"), graph_with("2.0", "q"), graph_with("3.0", "p")

    assert structural_hash(first, 1) == structural_hash(same, 1)
    assert structural_hash(first, 1) != structural_hash(other, 1)


def test_composites_become_functions_and_change_the_hash(parsed: Parsed, evaluate: Evaluate) -> None:
    model = parsed(BASE)
    graph = DataflowGraph(model)
    dense = Composite("mock.dense", 0b011, (("units", "3"),))

    extraction = extract(graph, graph.all_mask, name="f", composites=[dense])

    assert [node.op_type for node in extraction.model.graph] == ["composite_0", "Relu"]
    [function] = extraction.model.functions.values()
    assert function.metadata_props == {"collage.composite": "mock.dense", "collage.composite.units": "3"}
    assert [node.op_type for node in function] == ["MatMul", "Add"]
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(evaluate(extraction.model, {"x": x})[0], evaluate(model, {"x": x})[0])
    assert structural_hash(graph, graph.all_mask, [dense]) != structural_hash(graph, graph.all_mask)


def test_a_composite_whose_value_is_a_graph_output(parsed: Parsed, evaluate: Evaluate) -> None:
    graph = DataflowGraph(parsed(BASE.replace("(float[2,3] y)", "(float[2,3] y, float[2,3] a)")))

    extraction = extract(graph, graph.all_mask, name="f", composites=[Composite("mock.dense", 0b011)])

    x = np.ones((2, 4), np.float32)
    named = dict(zip((v.name for v in extraction.output_values), evaluate(extraction.model, {"x": x}), strict=True))
    np.testing.assert_array_equal(np.maximum(named["a"], 0), named["y"])


def test_tensors_are_shared_and_a_marked_call_is_extracted_as_its_body(parsed: Parsed) -> None:
    model = parsed(BASE)
    graph = DataflowGraph(model)
    extraction = extract(graph, graph.all_mask, name="f")

    shared = extraction.model.graph.initializers["w"].const_value
    assert shared is model.graph.initializers["w"].const_value
    assert [value.name for value in extraction.constant_values] == ["w", "b"]
    assert list(extraction.model.graph.initializers) == ["w", "b"]


def test_a_marked_function_is_one_node_that_extracts_as_its_body(evaluate: Evaluate) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (float[2] x) => (float[2] y) { a = mine.twice(x) y = Neg(a) }
        <domain: "mine", opset_import: ["" : 21]> twice (p) => (q) { r = Relu(p) q = Add(r, r) }"""
    )
    model = onnx_ir.from_proto(proto)
    next(iter(model.functions.values())).metadata_props.update({"collage.primitive": "1", "collage.compiler": "mock"})
    graph = DataflowGraph(model)

    extraction = extract(graph, 0b01, name="f")

    assert graph.compilers == {0: "mock"}
    assert [node.op_type for node in extraction.model.graph] == ["Relu", "Add"]
    assert not extraction.model.functions
    assert model.functions
