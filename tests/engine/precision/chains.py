"""A chain of products, and what rounding each of them does, made up."""

from __future__ import annotations

import functools

from collage.precision.sensitivity.groups import ProductGroup
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage_core.contract import Joins, Target
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product, Range
from collage_testing import GraphBuilder

PLAIN = Target(toolchain="t", fingerprint="t 1", joins=Joins.ANY)
BF16 = Target(toolchain="t", options=(("precision", "bf16"),), fingerprint="t 1", joins=Joins.ANY, exact=False)
INT8 = Target(toolchain="t", options=(("precision", "int8"),), fingerprint="t 1", joins=Joins.ANY, exact=False)
BOTH = Target(toolchain="t", options=(("precision", "int8+bf16"),), fingerprint="t 1", joins=Joins.ANY, exact=False)
INT8_WEIGHTS = Target(
    toolchain="t", options=(("precision", "int8-weights"),), fingerprint="t 1", joins=Joins.ANY, exact=False
)
FP16 = Target(toolchain="t", options=(("precision", "fp16"),), fingerprint="t 1", joins=Joins.ANY, exact=False)


@functools.cache
def chain(length: int) -> DataflowGraph:
    """Return products of 64 by 64, one after another."""
    g = GraphBuilder("chain")
    value = g.input("x", 64, 64)
    for number in range(length):
        value = g.op("MatMul", value, g.weight(f"w{number}", 64, 64))
    return DataflowGraph(g.model(value))


def sensitivities(
    int8: list[float], bf16: list[float] | None = None, flops: list[float] | None = None
) -> Sensitivities:
    """Return those of a chain in which each product is a group."""
    works = flops or [1.0] * len(int8)
    groups = [
        ProductGroup(products=(Int8Product(number, Range(-1.0, 1.0)),), flops=work) for number, work in enumerate(works)
    ]
    return Sensitivities(groups=groups, int8=int8, bf16=bf16 or [each / 8 for each in int8])
