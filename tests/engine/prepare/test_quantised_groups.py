"""Preparing a model unties quantised operators that share a dequantizer."""

from __future__ import annotations

from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.core.fusion.test_quantised import named, sharing_a_dequantizer


def test_a_dequantizer_two_operators_share_is_made_twice() -> None:
    prepared = prepare(sharing_a_dequantizer())

    assert named(DataflowGraph(prepared)) == ["DQ DQ Conv Q", "DQ DQ Add Q"]
    assert [node.op_type for node in prepare(prepared).graph] == [node.op_type for node in prepared.graph]
