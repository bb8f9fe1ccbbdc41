"""Where rounding to few bits has a say."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantised import roundings

Parsed = Callable[..., onnx_ir.Model]


def test_rounding_has_a_say_in_what_is_behind_it_and_in_nothing_else(parsed: Parsed) -> None:
    model = parsed(
        """g (float[2] x, int8[2] n) => (float[2] a, float[2] b, float[2] c) <float s = {0.5}, int8 z = {1}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) a = Exp(d)
        e = DequantizeLinear(n, s, z) b = Exp(e) f = Relu(x) c = Add(f, f) }"""
    )

    assert {value.name: count for value, count in roundings(model.graph).items()} == {"q": 1, "d": 1, "a": 1}


def test_roundings_in_a_row_are_counted_and_those_side_by_side_are_not(parsed: Parsed) -> None:
    model = parsed(
        """g (float[2] x) => (float[2] y) <float s = {0.5}, int8 z = {1}> {
        a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z) c = QuantizeLinear(b, s, z)
        d = DequantizeLinear(c, s, z) y = Add(d, b) }"""
    )

    assert {value.name: count for value, count in roundings(model.graph).items()} == {
        "a": 1,
        "b": 1,
        "c": 2,
        "d": 2,
        "y": 2,
    }


def test_weights_that_are_rounded_are_rounded_alike_everywhere(parsed: Parsed) -> None:
    model = parsed(
        """g (float[2] x) => (float[2] y) <float s = {0.5}, int8 z = {1}, float[2] w = {1.0, 2.0}> {
        q = QuantizeLinear(w, s, z) d = DequantizeLinear(q, s, z) y = Mul(x, d) }"""
    )

    assert not roundings(model.graph)


def test_scales_found_at_run_time_round_too(parsed: Parsed) -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) { q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }"
    )

    assert {value.name for value in roundings(model.graph)} == {"q", "s", "z", "y"}


def test_what_is_converted_stands_beside_what_reads_it(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (int8[2] x) => (float[2] y) <float s = {0.5}, int8 z = {1}> {
            skip = DequantizeLinear(x, s, z) other = DequantizeLinear(x, s, z)
            a = Exp(other) b = Neg(a) y = Add(skip, b) }"""
        )
    )

    assert [node.op_type for node in graph.nodes] == ["DequantizeLinear", "Exp", "Neg", "DequantizeLinear", "Add"]
