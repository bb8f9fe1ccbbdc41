"""Nodes that may be proposed: those of `operators/table.py`, asked without the library."""

from __future__ import annotations

from collage_core.contract import Supported, Unsupported, ValueKind
from collage_core.patterns import NodeContext, PatternTable
from collage_halide.errors import Refused
from collage_halide.op import Op
from collage_halide.operators.table import OPERATORS, operator_of


def register(table: PatternTable) -> None:
    """Register a predicate for every operator that has a kernel."""
    for operator in OPERATORS:
        table.predicate(operator, takes)


def takes(node: NodeContext) -> Supported | Unsupported:
    """Return whether there is a kernel for a node alone; for a group, lowering may still refuse."""
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and spec.name and spec.kind is not ValueKind.PLANNED:
            return Unsupported(f"the shape of {spec.name!r} is not known before it runs; kernels are compiled for one")
    try:
        operator_of(Op(node.node, node.version))
    except Refused as refusal:
        return Unsupported(refusal.reason)
    return Supported()
