"""Nodes that may be proposed: those the expression compiler itself expands, so no second table is needed."""

from __future__ import annotations

import onnx_ir

from collage_core.contract import Supported, Unsupported, ValueKind
from collage_core.ir.values.content import constant_of
from collage_core.patterns import NodeContext, PatternTable
from collage_triton.elements import element_type
from collage_triton.errors import Refused
from collage_triton.expand import Expander, shape_of
from collage_triton.rules import RULES


def register(table: PatternTable) -> None:
    """Register a predicate for every operator that has a rule for loop nests."""
    for operator in RULES:
        table.predicate(operator, takes)


def takes(node: NodeContext) -> Supported | Unsupported:
    """Return whether there is a loop nest for a node alone; for a group, lowering may still refuse."""
    if node.node.op_identifier() in node.graph.model.functions:
        return Supported()  # a function of the model: kernel functions come with its body in place of the call
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and spec.name and spec.kind is not ValueKind.PLANNED:
            return Unsupported(f"the shape of {spec.name!r} is not known before it runs; loops are compiled for one")
    leaves: dict[onnx_ir.Value, str] = {}
    for place, value in enumerate(node.node.inputs):
        if value is not None and (constant_of(value) is None or constant_of(value).size > 1):  # type: ignore[union-attr]
            leaves[value] = f"in{place}"
    try:
        for value in node.node.outputs:
            if value.name and (value.uses() or value.is_graph_output()):
                element_type(value.dtype, value.name)
                _expand(value, leaves)
    except Refused as refusal:
        return Unsupported(refusal.reason)
    return Supported()


def _expand(value: onnx_ir.Value, leaves: dict[onnx_ir.Value, str]) -> None:
    x = Expander(leaves, RULES)
    variables = [x.terms.var(f"axis{axis}", None, extent) for axis, extent in enumerate(shape_of(value))]
    x.at(value, tuple(x.terms.of(var) for var in variables))
