from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir
import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import (
    Match,
    Mismatch,
    Pattern,
    is_absent,
    is_constant,
    is_op,
    is_scalar,
    match,
    wildcard,
)

Parsed = Callable[..., onnx_ir.Model]

DENSE = """g (float[2,4] x) => (float[2,3] y)
<float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}>
{ h = MatMul(x, w) a = Add(b, h) y = Relu(a) }"""


@pytest.fixture
def dense(parsed: Parsed) -> DataflowGraph:
    return DataflowGraph(parsed(DENSE))


def matched(pattern: Pattern, graph: DataflowGraph, index: int) -> Match:
    result = match(pattern, graph, index)
    assert isinstance(result, Match), result
    return result


def failed(pattern: Pattern, graph: DataflowGraph, index: int) -> Mismatch:
    result = match(pattern, graph, index)
    assert isinstance(result, Mismatch), result
    assert not result
    return result


def dense_pattern() -> Pattern:
    return is_op("Add")(is_op("MatMul")(wildcard(), is_constant().named("weight")), is_constant().named("bias"))


def test_operands_of_commutative_operators_may_be_swapped(dense: DataflowGraph) -> None:
    result = matched(dense_pattern(), dense, 1)

    assert result.nodes == 0b011
    assert result.captures["weight"].name == "w"
    bias = result.constant("bias")
    assert bias is not None
    np.testing.assert_array_equal(bias, [1, 2, 3])


def test_optional_operators_are_taken_where_they_are(dense: DataflowGraph) -> None:
    pattern = dense_pattern().optional(is_op("Relu", "Tanh"))

    assert matched(pattern, dense, 2).nodes == 0b111
    assert matched(pattern, dense, 1).nodes == 0b011


def test_wildcards_stay_outside(dense: DataflowGraph) -> None:
    assert matched(is_op("Relu")(wildcard()), dense, 2).nodes == 0b100
    assert isinstance(match(wildcard(), dense, 2), Mismatch)


def test_a_failure_tells_the_reason_of_the_attempt_that_got_furthest(dense: DataflowGraph) -> None:
    pattern = is_op("Relu")(is_op("Add")(wildcard(), is_op("Gemm")))

    result = failed(pattern, dense, 2)

    assert "MatMul, not Gemm" in result.reason
    assert result.nodes == 0b110


def test_a_pattern_used_twice_matches_one_value(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            "g (float[2] x) => (float[2] y, float[2] z) { s = Sigmoid(x) y = Mul(x, s) t = Sigmoid(y) z = Mul(x, t) }"
        )
    )
    x = wildcard()
    silu = is_op("Mul")(x, is_op("Sigmoid")(x))

    assert matched(silu, graph, 1).nodes == 0b0011
    assert "not the value matched before" in failed(silu, graph, 3).reason


def test_backtracking_tries_every_operand_order(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { a = Exp(x) b = Neg(a) c = Exp(b) y = Add(a, c) }"))
    pattern = is_op("Add")(is_op("Exp")(is_op("Neg")(wildcard())), is_op("Exp")(wildcard()))

    assert matched(pattern, graph, 3).nodes == 0b1111


def test_attributes_shapes_and_dtypes(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2,3] x) => (float[2,3] y) { y = Softmax<axis=1>(x) }"))
    softmax = is_op("Softmax")

    assert match(softmax.has_attr(axis=1), graph, 0)
    assert match(softmax.has_attr(axis=lambda axis: axis in (1, -1)), graph, 0)
    assert failed(softmax.has_attr(axis=0), graph, 0).reason == "Softmax_0 has axis=1"
    assert match(softmax.has_dtype("FLOAT").has_rank(2).has_shape([2, None]), graph, 0)
    assert "has not dtype FLOAT16" in failed(softmax.has_dtype("FLOAT16"), graph, 0).reason
    assert "has not rank 3" in failed(softmax(wildcard().has_rank(3)), graph, 0).reason


def test_missing_and_further_operands(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed("g (float[2] x) => (float[2] y, float[2] z) <float six = {6.0}> { y = Clip(x, , six) z = Clip(y, six) }")
    )
    x = wildcard()

    assert match(is_op("Clip")(x, is_absent(), is_scalar(6)), graph, 0)
    assert match(is_op("Clip")(x, ...), graph, 0)
    assert match(is_op("Clip"), graph, 0)
    assert match(is_op("Clip")(x, is_constant(), is_absent()), graph, 1)
    assert "should be absent" in failed(is_op("Clip")(x, is_absent(), ...), graph, 1).reason
    assert "3 operands, the pattern 1" in failed(is_op("Clip")(x), graph, 0).reason
    assert "absent" in failed(is_op("Clip")(x, wildcard(), wildcard()), graph, 0).reason
    with pytest.raises(TypeError, match="only comes last"):
        is_op("Clip")(..., x)


def test_alternatives_prefer_the_first(dense: DataflowGraph) -> None:
    pattern = is_op("Relu")(is_op("Add")) | is_op("Relu")

    assert matched(pattern, dense, 2).nodes == 0b110
    assert matched(is_op("Gemm") | is_op("MatMul"), dense, 0).nodes == 0b001


def test_outputs_can_be_told_apart(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[4] x) => (float[2] y) { a, b = Split<num_outputs=2>(x) y = Relu(b) }"))

    assert match(is_op("Relu")(is_op("Split").at(1)), graph, 1)
    assert "not output 0" in failed(is_op("Relu")(is_op("Split").at(0)), graph, 1).reason


def test_operators_of_other_domains() -> None:
    assert is_op("com.microsoft::Gelu").domain == "com.microsoft"
    with pytest.raises(ValueError, match="one domain"):
        is_op("Relu", "com.microsoft::Gelu")


def test_captured_nodes_are_given_as_contexts(dense: DataflowGraph) -> None:
    result = matched(is_op("Relu")(is_op("Add").named("sum")).named("out"), dense, 2)

    assert result.node("sum").op_type == "Add"
    assert result.node("sum").is_constant(0)
    assert not result.node("sum").is_constant(1)
    assert result.node("out").index == result.root == 2
    assert result.constant("sum") is None
