from __future__ import annotations

import onnx
import onnx_ir
import pytest
from onnx import defs

from collage_core.ir.graph import call_kind
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.op_kind import OpPatternKind, known_kind

HEAD = '<ir_version: 10, opset_import: ["" : 21, "mine" : 1]> '


def kinds(graph: str, functions: str = "") -> tuple[OpPatternKind, ...]:
    return DataflowGraph(onnx_ir.from_onnx_text(HEAD + graph + functions)).kinds


def test_a_call_is_as_hard_to_fuse_as_the_hardest_operator_of_its_body() -> None:
    graph = "g (float[2,3] x, float[3,4] w) => (float[2,4] y, float[2,3] z) { y = mine.Dense(x, w) z = mine.Twice(x) }"
    functions = """
<domain: "mine", opset_import: ["" : 21]> Dense (x, w) => (y) { h = MatMul(x, w) y = Relu(h) }
<domain: "mine", opset_import: ["" : 21]> Twice (x) => (y) { y = Add(x, x) }"""

    assert kinds(graph, functions) == (OpPatternKind.OUT_ELEMENTWISE_FUSABLE, OpPatternKind.ELEMENTWISE)


def test_the_same_function_is_of_another_kind_on_other_shapes() -> None:
    """The second call broadcasts, the third reduces one element."""
    graph = """g (float[2,3] x, float[3] b, float[2,1] c) => (float[2,3] p, float[2,3] q, float[2,1] r, float[2,1] s)
{ p = mine.Sum(x, x) q = mine.Sum(x, b) r = mine.Largest(c) s = mine.Largest(x) }"""
    functions = """
<domain: "mine", opset_import: ["" : 21]> Sum (x, z) => (y) { y = Add(x, z) }
<domain: "mine", opset_import: ["" : 21]> Largest (x) => (y)
{ a = Constant<value = int64[1] {1}>() y = ReduceMax(x, a) }"""

    k = OpPatternKind
    assert kinds(graph, functions) == (k.ELEMENTWISE, k.BROADCAST, k.ELEMENTWISE, k.REDUCTION)


def test_what_computes_shapes_in_a_body_is_no_work() -> None:
    graph = "g (float[2,3] x) => (float[3,2] y) { y = mine.Turn(x) }"
    function = """
<domain: "mine", opset_import: ["" : 21]> Turn (x) => (y)
{ s = Shape(x) p = Constant<value = int64[2] {1, 0}>() t = Gather(s, p) y = Reshape(x, t) }"""

    assert kinds(graph, function) == (OpPatternKind.INJECTIVE,)


def test_functions_in_functions_are_looked_into() -> None:
    graph = "g (float[2,3] x) => (float[2,3] y) { y = mine.Outer<high = 2.0>(x) }"
    functions = """
<domain: "mine", opset_import: ["" : 21, "mine" : 1]> Outer <high> (x) => (y) { y = mine.Inner<high: float = @high>(x) }
<domain: "mine", opset_import: ["" : 21]> Inner <high> (x) => (y) { s = Softmax(x) y = Elu<alpha: float = @high>(s) }"""

    assert kinds(graph, functions) == (OpPatternKind.REDUCTION,)


@pytest.mark.parametrize(
    "body", ["r = RandomNormal<shape = [2,3]>() y = Add(x, r)", "y = other.Unheard(x)", "y = CumSum(x, x)"]
)
def test_what_is_opaque_inside_is_opaque_outside(body: str) -> None:
    graph = "g (float[2,3] x) => (float[2,3] y) { y = mine.F(x) }"
    function = f'<domain: "mine", opset_import: ["" : 21, "other" : 1]> F (x) => (y) {{ {body} }}'

    assert kinds(graph, function) == (OpPatternKind.OPAQUE,)


def test_an_operator_nobody_gave_a_body_is_opaque() -> None:
    assert kinds("g (float[2,3] x) => (float[2,3] y) { y = mine.Unheard(x) }") == (OpPatternKind.OPAQUE,)


def test_a_function_marked_as_a_kernel_stays_alone() -> None:
    model = onnx_ir.from_onnx_text(
        HEAD
        + "g (float[2,3] x) => (float[2,3] y) { y = mine.Twice(x) }"
        + '<domain: "mine", opset_import: ["" : 21]> Twice (x) => (y) { y = Add(x, x) }'
    )
    for function in model.functions.values():
        function.metadata_props["collage.primitive"] = "1"

    assert DataflowGraph(model).kinds == (OpPatternKind.OPAQUE,)


OF_ONE_TENSOR = sorted(
    schema.name
    for schema in defs.get_all_schemas()
    if schema.domain == "" and schema.has_function and schema.min_input <= 1 <= schema.max_input
    if schema.name not in ("BlackmanWindow", "HammingWindow", "HannWindow")  # of a number, not of a tensor
)


@pytest.mark.parametrize("name", OF_ONE_TENSOR)
def test_the_kinds_of_the_table_are_those_of_the_standards_own_bodies(name: str) -> None:
    """Read as a function of the model, an operator of the standard that has a body is of the kind its name has."""
    schema = defs.get_schema(name)
    function = onnx.FunctionProto()
    function.CopyFrom(schema.function_body)
    function.domain, function.name = "mine", "F"
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    attributes = [schema.attributes[each].default_value for each in function.attribute if each not in defaults]
    shape = [1, 2, 3, 4]
    result = [1, 1, 1, 1] if name.startswith("Reduce") else shape
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("F", ["x"], [f"y{i}" for i in range(len(function.output))], domain="mine")],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [
                onnx.helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, result)
                for i in range(len(function.output))
            ],
        ),
        functions=[function],
        opset_imports=[
            onnx.helper.make_opsetid("", function.opset_import[0].version),
            onnx.helper.make_opsetid("mine", 1),
        ],
        ir_version=10,
    )
    model.graph.node[0].attribute.extend(each for each in attributes if each.name)

    found = DataflowGraph(onnx_ir.from_proto(model)).kinds

    assert found == (known_kind(name),)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(float[2,3] x) => (float[2,3] y) { y = Gelu(x) }", OpPatternKind.ELEMENTWISE),
        ("(float[2,3] x, float[3] w) => (float[2,3] y) { y = LayerNormalization(x, w) }", OpPatternKind.REDUCTION),
    ],
)
def test_an_operator_newer_than_the_table_has_the_kind_of_its_body(
    monkeypatch: pytest.MonkeyPatch, text: str, kind: OpPatternKind
) -> None:
    """Bodies of these depend on the types they are called with."""

    def older(op_type: str, domain: str = "") -> OpPatternKind | None:
        return None if op_type in ("Gelu", "LayerNormalization") else known_kind(op_type, domain)

    monkeypatch.setattr(call_kind, "known_kind", older)
    model = onnx_ir.from_onnx_text(HEAD + "g " + text)
    graph = DataflowGraph(model)

    assert call_kind.kind_of_node(graph.nodes[0], model, graph.spec) is kind
