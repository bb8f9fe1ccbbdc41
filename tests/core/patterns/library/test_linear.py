from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match, Pattern, is_op, match, wildcard
from collage_core.patterns.library.linear import matmul_pattern
from collage_testing import GraphBuilder


def product(
    operator: str = "MatMul",
    *,
    turned: bool = False,
    bias: str = "",
    activation: str = "",
    skip: bool = False,
    **given: Any,
) -> DataflowGraph:
    """`x` times `w`, perhaps transposed, plus `b` (by "Add" or as "C"), plus `skip`, activated."""
    g = GraphBuilder()
    x = g.input("x", 4, 8)
    w = g.weight("w", 6, 8) if turned or given.get("transB") else g.weight("w", 8, 6)
    second = g.op("Transpose", w, perm=[1, 0]) if turned else w
    third = [g.weight("b", 6)] if bias == "C" else []
    value = g.op(operator, x, second, *third, **given)
    if bias == "Add":
        value = g.op("Add", g.weight("b", 6), value)
    if skip:
        value = g.op("Add", g.op("Tanh", g.input("skip", 4, 6)), value)
    if activation:
        value = g.op(activation, value)
    return DataflowGraph(g.model(value))


def taken(pattern: Pattern, graph: DataflowGraph) -> dict[str, str | None] | None:
    """Names of captured values where the pattern matches at the graph's output."""
    found = match(pattern, graph, len(graph) - 1)
    return {name: value.name for name, value in found.captures.items()} if isinstance(found, Match) else None


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (product(), {}),
        (product("Gemm"), {}),
        (product(turned=True), {"transposed": True}),
        (product("Gemm", transB=1), {"transposed": True}),
        (product("Gemm", turned=True), {"transposed": True}),
        (product(bias="Add"), {"bias": True}),
        (product("Gemm", bias="C"), {"bias": True}),
        (product("Gemm", bias="Add"), {"bias": True}),
        (product("Gemm", turned=True, bias="C"), {"bias": True, "transposed": True}),
        (product(skip=True), {"residual": True}),
        (product(bias="Add", skip=True, activation="Relu"), {"bias": True, "residual": True, "activation": "Relu"}),
    ],
)
def test_each_form_is_found_by_its_options_and_by_open_ones_and_by_no_others(
    graph: DataflowGraph, options: dict[str, Any]
) -> None:
    exact: dict[str, Any] = {"bias": False, "residual": False, "transposed": False, "activation": None} | options
    names = {"a": "x", "b": "w", "product": graph.nodes[graph.index_of(first_product(graph))].outputs[0].name}
    names |= {"bias": "b"} if exact["bias"] else {}
    names |= {"residual": "tanh_0"} if exact["residual"] else {}
    names |= {"activation": "relu_0"} if exact["activation"] else {}

    assert taken(matmul_pattern(**exact), graph) == names
    assert (
        taken(matmul_pattern(bias=None, residual=None, transposed=None, activation=exact["activation"]), graph) == names
    )
    for option in ("bias", "residual"):
        assert taken(matmul_pattern(**exact | {option: not exact[option]}), graph) != names
    assert taken(matmul_pattern(**exact | {"activation": "Tanh"}), graph) is None


def first_product(graph: DataflowGraph) -> str:
    return next(name for name in graph.names if name.startswith(("matmul", "gemm")))


def test_a_transposed_product_is_none_that_is_not() -> None:
    assert taken(matmul_pattern(transposed=True), product()) is None
    assert taken(matmul_pattern(transposed=False), product("Gemm", transB=1)) is None
    plain = taken(matmul_pattern(transposed=False), product(turned=True))
    assert plain is not None
    assert plain["b"] == "transpose_0"  # a value like any other


def test_a_product_that_scales_or_turns_the_first_operand_is_left_alone() -> None:
    assert taken(matmul_pattern(), product("Gemm", alpha=0.5)) is None
    assert taken(matmul_pattern(bias=True), product("Gemm", bias="C", beta=2.0)) is None
    assert taken(matmul_pattern(), product("Gemm", alpha=1.0)) is not None


def test_a_permutation_of_other_axes_is_no_transposition() -> None:
    g = GraphBuilder()
    b = g.op("Transpose", g.weight("w", 2, 3, 4), perm=[1, 0, 2])
    graph = DataflowGraph(g.model(g.op("MatMul", g.input("x", 3, 5, 2), b)))

    assert taken(matmul_pattern(transposed=True), graph) is None


def test_what_is_no_vector_is_no_bias() -> None:
    g = GraphBuilder()
    value = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 6))
    graph = DataflowGraph(g.model(g.op("Add", value, g.constant("table", np.ones((4, 6), np.float32)))))

    assert taken(matmul_pattern(bias=True), graph) is None
    assert taken(matmul_pattern(residual=True), graph) is None  # it is a constant


def test_two_products_in_one_pattern_have_names_of_their_own() -> None:
    g = GraphBuilder()
    x = g.input("x", 4, 8)
    left, right = g.op("MatMul", x, g.weight("v", 8, 6)), g.op("MatMul", x, g.weight("w", 8, 6))
    graph = DataflowGraph(g.model(g.op("Sub", left, right)))

    found = taken(is_op("Sub")(matmul_pattern(prefix="left_"), matmul_pattern(prefix="right_")), graph)

    assert found is not None
    assert (found["left_b"], found["right_b"], found["left_a"]) == ("v", "w", "x")


def scaled_gemm(*third: int, **given: Any) -> DataflowGraph:
    """A Gemm of factors and transpositions, with a third operand of a shape."""
    g = GraphBuilder()
    value = g.op("Gemm", g.input("x", 8, 4), g.weight("w", 8, 6), *([g.input("c", *third)] if third else []), **given)
    return DataflowGraph(g.model(g.op("Relu", value)))


FACTORS = {"alpha": 0.5, "beta": 2.0, "transA": 1}


@pytest.mark.parametrize(
    ("third", "name", "options"),
    [
        ((), None, {}),
        ((6,), "bias", {"bias": True}),
        ((4, 6), "residual", {"residual": True}),
        ((4, 6), "residual", {"residual": None, "bias": None}),
    ],
)
def test_a_gemm_that_scales_is_found_where_that_is_asked_for(
    third: tuple[int, ...], name: str | None, options: dict[str, Any]
) -> None:
    graph = scaled_gemm(*third, **FACTORS)
    names = {"a": "x", "b": "w", "product": "gemm_0", "activation": "relu_0"} | ({name: "c"} if name else {})

    assert taken(matmul_pattern(activation="Relu", scaled=True, **options), graph) == names
    assert taken(matmul_pattern(activation="Relu", **options), graph) is None


def test_a_matrix_is_no_bias_and_a_vector_no_residual_of_a_gemm() -> None:
    assert taken(matmul_pattern(activation="Relu", scaled=True, bias=True), scaled_gemm(4, 6, **FACTORS)) is None
    assert taken(matmul_pattern(activation="Relu", scaled=True, residual=True), scaled_gemm(6, **FACTORS)) is None


def test_operands_may_be_asked_to_look_like_something_and_are_captured_all_the_same() -> None:
    g = GraphBuilder()
    x = g.op("Tanh", g.input("x", 4, 8))
    graph = DataflowGraph(g.model(g.op("MatMul", x, g.weight("w", 8, 6))))
    from_tanh = is_op("Tanh")(wildcard())

    found = match(matmul_pattern(operands=[(wildcard(), from_tanh), (from_tanh, wildcard())]), graph, 1)

    assert isinstance(found, Match)
    assert {name: value.name for name, value in found.captures.items()} == {
        "a": "tanh_0",
        "b": "w",
        "product": "matmul_0",
    }
    assert [node.op_type for node in found.contexts] == ["Tanh", "MatMul"]
    assert taken(matmul_pattern(operands=[(wildcard(), from_tanh)]), graph) is None


def scaled_product(a: str = "", b: str = "", after: str = "", *, seen: str = "") -> DataflowGraph:
    """`x` times `w`, each and the product scaled by an operator, plus `b`, rectified; a view comes before `seen`."""
    g = GraphBuilder()

    def number(operator: str, value: Any, name: str) -> Any:
        return g.op(operator, value, g.constant(name, np.float32(3))) if operator else value

    x, w = number(a, g.input("x", 4, 8), "a_number"), number(b, g.input("w", 8, 6), "b_number")
    value = number(after, g.op("MatMul", x, w), "number")
    value = g.op("Reshape", value, g.ints(2, 2, 6)) if seen == "bias" else value
    value = g.op("Add", value, g.weight("b", 6))
    value = g.op("Reshape", value, g.ints(24)) if seen == "Relu" else value
    return DataflowGraph(g.model(g.op("Relu", value)))


@pytest.mark.parametrize(
    ("graph", "captured"),
    [
        (scaled_product("Mul"), {"a_factor": "a_number"}),
        (scaled_product("Div", "Mul"), {"a_divisor": "a_number", "b_factor": "b_number"}),
        (scaled_product(after="Div"), {"product_divisor": "number"}),
    ],
)
def test_a_factor_of_an_operand_or_the_product_is_found_where_it_is_asked_for(
    graph: DataflowGraph, captured: dict[str, str]
) -> None:
    asked: dict[str, Any] = {"bias": True, "activation": "Relu"}
    found = taken(matmul_pattern(factor=True, **asked), graph)

    assert found is not None
    assert {name: value for name, value in found.items() if name.endswith(("_factor", "_divisor"))} == captured
    assert taken(matmul_pattern(factor=None, **asked), graph) == found
    alone = taken(matmul_pattern(**asked), graph)
    assert alone is None or captured.keys() <= {"a_factor", "a_divisor", "b_factor", "b_divisor"}
    assert taken(matmul_pattern(factor=True, **asked), scaled_product()) is None


@pytest.mark.parametrize("seen", ["bias", "Relu"])
def test_a_view_between_two_steps_is_found_where_it_is_asked_for(seen: str) -> None:
    graph = scaled_product(seen=seen)
    asked: dict[str, Any] = {"bias": True, "activation": "Relu"}

    assert taken(matmul_pattern(**asked), graph) is None
    found = taken(matmul_pattern(viewed=True, **asked), graph)
    assert found is not None
    assert (found["bias"], found["product"]) == ("b", "matmul_0")
    assert taken(matmul_pattern(viewed=None, **asked), graph) == found
    assert taken(matmul_pattern(viewed=True, **asked), scaled_product()) is None
    assert taken(matmul_pattern(viewed=None, **asked), scaled_product()) is not None


def test_a_view_needs_two_steps() -> None:
    with pytest.raises(ValueError, match="there is but one"):
        matmul_pattern(viewed=True)
