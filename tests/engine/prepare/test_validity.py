"""An unexpected exception is the model's fault if ONNX's checker refuses the model, and ours otherwise."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare
from collage.prepare.validity import blamed_on, invalidity
from collage_core.errors import InvalidModelError, ModelError, UsageError
from collage_core.ir.io.model_io import model_from_bytes
from collage_testing import GraphBuilder, mnist


def cast_to_nothing() -> ir.Model:
    """A Cast that does not say to which type."""
    return ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) { y = Cast(x) }""")


def test_a_valid_model_has_nothing_invalid() -> None:
    assert invalidity(mnist()) == ""


def test_weights_are_not_needed_to_check_a_model() -> None:
    g = GraphBuilder()
    model = g.model(g.op("MatMul", g.input("x", 2, 4), g.weight("w", 4, 4000)))

    assert invalidity(model) == ""
    assert model.graph.initializers["w"].const_value is not None


@pytest.mark.guards("anything unexpected over a valid model", "goes on: it is a defect of Collage", area="input")
def test_an_exception_over_a_valid_model_goes_on() -> None:
    with pytest.raises(KeyError, match="ours"), blamed_on(mnist()):
        raise KeyError("ours")


@pytest.mark.guards(
    "anything unexpected over a model ONNX's checker refuses",
    "what the checker says, not where it was noticed",
    area="input",
)
def test_an_exception_over_an_invalid_model_becomes_what_the_checker_says() -> None:
    with (
        pytest.raises(InvalidModelError, match="Required attribute 'to' is missing") as caught,
        blamed_on(cast_to_nothing()),
    ):
        raise KeyError("to")

    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_of_ours_stays_what_it_is() -> None:
    with pytest.raises(UsageError, match="said"), blamed_on(cast_to_nothing()):
        raise UsageError("said")


@pytest.mark.guards(
    "a node with inputs, outputs or attributes its operator has not",
    "refused with the node, before ONNX's C++ sees it",
    area="input",
)
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("y = Cast(x)", r"\(Cast\) has no attribute 'to', which it needs"),
        ("y = Cast <to = 1.5> (x)", "an attribute 'to' of type FLOAT, not INT"),
        ("y, z = MaxPool <kernel_shape = [1]> (x, x)", "has 2 inputs, 1 are possible"),
        ("y, z, u = MaxPool <kernel_shape = [1]> (x)", "has 3 outputs, 1 to 2 are possible"),
    ],
)
def test_a_node_that_is_not_what_its_operator_is_is_named(nodes: str, message: str) -> None:
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[1, 1, 2] x) => (float[1, 1, 2] y) {{ {nodes} }}'
    )

    with pytest.raises(InvalidModelError, match=message):
        prepare(model)


@pytest.mark.guards("a marked kernel of another opset than the model", "refused with both versions", area="input")
def test_a_kernel_of_another_version_than_the_model_is_refused() -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.kernel(x) }
        <domain: "local", opset_import: ["" : 13]> kernel (a) => (b) { b = Exp(a) }"""
    model = ir.from_onnx_text(text)
    for function in model.functions.values():
        function.metadata_props["collage.primitive"] = "1"

    with pytest.raises(ModelError, match="version 13 of the domain '', and the model of version 21"):
        prepare(model)


def test_a_kernel_that_is_given_a_body_is_refused() -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.kernel <unused = body () => (float[2] z) { z = Exp(x) }> (x) }
        <domain: "local", opset_import: ["" : 21]> kernel (a) => (b) { b = Exp(a) }"""
    model = ir.from_onnx_text(text)
    for function in model.functions.values():
        function.metadata_props["collage.primitive"] = "1"

    with pytest.raises(ModelError, match="'kernel', marked as a kernel, has a body as its attribute 'unused'"):
        prepare(model)


def test_an_index_beyond_a_shape_is_left_to_who_runs_it() -> None:
    g = GraphBuilder()
    x = g.input("x", 2, 3)
    model = g.model(g.op("Add", g.op("Gather", g.op("Shape", x), g.constant("two", np.int64(2))), g.ints(1)))

    assert "Gather" in [node.op_type for node in prepare(model).graph]


def test_a_node_that_contradicts_a_shape_only_folding_shows_is_named() -> None:
    """ONNX's checker passes the model as given: the rank of what is transposed is known once `Shape` is folded."""
    model = ir.from_onnx_text("""
        <ir_version: 7, opset_import: ["" : 13]>
        g (float[3, 5] x) => (float z) {
          shape = Shape (x)
          same = Reshape (x, shape)
          turned = Transpose <perm = [0, 2, 1]> (same)
          z = ReduceSum <keepdims = 0> (turned)
        }""")
    assert invalidity(model) == ""

    with pytest.raises(InvalidModelError, match=r"Transpose.*perm \{0, 2, 1\}, input shape = \{3, 5\}"):
        prepare(model)


@pytest.mark.guards("an attribute that is no text; a model without outputs; a negative extent")
def test_a_negative_extent_is_refused_by_name() -> None:
    g = GraphBuilder()
    model = g.model(g.op("Relu", g.input("x", 2, -3)))

    with pytest.raises(InvalidModelError, match=r"'x'.*negative extent"):
        prepare(model)


@pytest.mark.guards(
    "a node, or an output, reads a value nothing gives", "one message that names the node and the value", area="input"
)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(float[2] x) => (float[2] y) { y = Add(x, gone) }", r"\(Add\) reads 'gone', which is no input, no weight"),
        ("(float[2] x) => (float[2] gone) { y = Neg(x) }", "output 'gone' is no input, no weight"),
        (
            """(bool c, float[2] x) => (float[2] y) {
              y = If (c) <
                then_branch = t () => (float[2] a) { a = Add(x, gone) },
                else_branch = e () => (float[2] b) { b = Neg(x) }
              > }""",
            r"\(Add\) reads 'gone'",
        ),
    ],
)
def test_what_nothing_gives_is_named(body: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}').SerializeToString()

    with pytest.raises(InvalidModelError, match=message):
        prepare(model_from_bytes(data))

    assert capfd.readouterr() == ("", "")


@pytest.mark.guards("an attribute that is no text; a model without outputs; a negative extent")
def test_a_model_without_outputs_is_refused() -> None:
    data = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString()

    with pytest.raises(InvalidModelError, match="no outputs"):
        prepare(model_from_bytes(data))


@pytest.mark.guards(
    "an attribute that is no text; a model without outputs; a negative extent", "refused by name", area="input"
)
def test_an_attribute_that_is_no_text_is_named() -> None:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    node = onnx.helper.make_node("Pad", ["x", "p"], ["y"], mode=b"\xff")
    pads = onnx.helper.make_tensor("p", onnx.TensorProto.INT64, [2], [0, 0])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([node], "g", [value], [output], [pads])
    data = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]).SerializeToString()

    with pytest.raises(InvalidModelError, match="'mode' that is no text"):
        prepare(model_from_bytes(data))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("y = made.twice(x, x)", r"\(twice\) has 2 inputs, the function it calls has 1"),
        ("y, z = made.twice(x)", r"\(twice\) has 2 outputs, the function it calls has 1"),
    ],
)
def test_a_call_with_more_than_its_function_has_is_refused(call: str, message: str) -> None:
    model = ir.from_onnx_text(f"""
        <ir_version: 10, opset_import: ["" : 21, "made" : 1]>
        g (float[2] x) => (float[2] y) {{ {call} }}
        <domain: "made", opset_import: ["" : 21]>
        twice (a) => (b) {{ b = Add(a, a) }}""")

    with pytest.raises(InvalidModelError, match=message):
        prepare(model)
