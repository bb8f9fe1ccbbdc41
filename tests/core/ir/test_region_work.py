"""Work of regions: arithmetic by element type, and the bytes across the border, counted by hand."""

from __future__ import annotations

import numpy as np
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import mask_of
from collage_core.ir.graph.region_work import RegionWork, region_work
from collage_testing import GraphBuilder

FLOAT, HALF, INT8 = onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.INT8


def work_of(graph: DataflowGraph, *names: str, rounded_to: onnx_ir.DataType | None = None) -> RegionWork:
    nodes = mask_of(graph.index_of(name) for name in names) if names else graph.all_mask
    return region_work(graph, nodes, rounded_to=rounded_to)


def two_layers() -> DataflowGraph:
    g = GraphBuilder()
    hidden = g.op("Relu", g.op("MatMul", g.input("x", 8, 16), g.weight("w", 16, 32)))
    return DataflowGraph(g.model(g.op("MatMul", hidden, g.weight("v", 32, 4)), hidden))


def test_what_stays_inside_is_not_moved_and_what_leaves_is_moved_once() -> None:
    graph = two_layers()

    whole, first, second = work_of(graph), work_of(graph, "matmul_0"), work_of(graph, "relu_0", "matmul_1")

    x, w, v, hidden, y = 8 * 16, 16 * 32, 32 * 4, 8 * 32, 8 * 4
    assert whole.nbytes == 4 * (x + w + v + hidden + y)  # the graph gives out what Relu makes
    assert first.nbytes == 4 * (x + w + hidden)
    assert second.nbytes == 4 * (hidden + v + hidden + y)
    assert whole.flops == {FLOAT: 2 * 8 * 16 * 32 + hidden + 2 * 8 * 32 * 4}


def test_of_a_product_whose_weight_alone_is_quantised_bytes_are_read_and_float32_is_computed() -> None:
    graph = two_layers()
    first = mask_of([graph.index_of("matmul_0")])

    found = region_work(graph, graph.all_mask, int8_weights=first)

    assert found.flops == work_of(graph).flops
    assert found.nbytes == work_of(graph).nbytes - 3 * 16 * 32


def test_a_value_that_two_nodes_read_counts_once() -> None:
    g = GraphBuilder()
    x = g.input("x", 10)
    graph = DataflowGraph(g.model(g.op("Add", g.op("Exp", x), x)))

    assert work_of(graph).nbytes == 4 * (10 + 10)


def test_of_a_table_only_the_rows_that_are_picked_are_read() -> None:
    g = GraphBuilder()
    rows = g.op("Gather", g.weight("table", 30_000, 8), g.input("ids", 5, dtype=onnx_ir.DataType.INT64))
    picked = DataflowGraph(g.model(rows))
    h = GraphBuilder()
    table = h.weight("table", 300, 8)
    both = h.op("Gather", table, h.input("ids", 5, dtype=onnx_ir.DataType.INT64))
    whole = DataflowGraph(h.model(both, h.op("ReduceSum", table, keepdims=0)))

    assert work_of(picked).nbytes == 4 * 5 * 8 + 8 * 5 + 4 * 5 * 8
    assert work_of(whole).nbytes == 4 * 300 * 8 + 8 * 5 + 4 * 5 * 8 + 4


def test_products_of_quantised_operands_are_integer_arithmetic() -> None:
    g = GraphBuilder()
    scale = g.constant("scale", np.float32(0.1))
    zeros = {dtype: g.constant(f"zero_{np.dtype(dtype).name}", np.zeros((), dtype)) for dtype in (np.uint8, np.int8)}
    x = g.op("QuantizeLinear", g.input("x", 4, 8), scale, zeros[np.uint8])
    weight = g.constant("w", np.ones((8, 2), np.int8))
    product = g.op(
        "MatMul",
        g.op("DequantizeLinear", x, scale, zeros[np.uint8]),
        g.op("DequantizeLinear", weight, scale, zeros[np.int8]),
    )
    graph = DataflowGraph(g.model(g.op("Relu", product)))

    assert work_of(graph, "matmul_0").flops == {INT8: 2 * 4 * 8 * 2}
    assert work_of(graph, "relu_0").flops == {FLOAT: 8}


def test_a_target_of_lower_precision_rounds_products_and_nothing_else() -> None:
    work = work_of(two_layers(), rounded_to=HALF)

    assert work.flops == {HALF: 2 * 8 * 16 * 32 + 2 * 8 * 32 * 4, FLOAT: 8 * 32}


def test_other_element_types_keep_their_own_arithmetic() -> None:
    g = GraphBuilder()
    half = g.input("x", 2, 3, dtype=HALF)
    graph = DataflowGraph(g.model(g.op("MatMul", half, g.input("y", 3, 4, dtype=HALF))))

    assert work_of(graph) == RegionWork(flops={HALF: 2 * 2 * 3 * 4}, nbytes=2 * (6 + 12 + 8))


def test_what_cannot_be_counted_is_named() -> None:
    model = onnx_ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (float[2] x) => (float[2] y) { a = Relu(x)  b = mine.Own(a)  y = Neg(b) }""")
    graph = DataflowGraph(model)

    work = work_of(graph)

    assert work.uncounted == ("Relu", "Own", "Neg")  # no shapes inside: nothing was inferred
    assert work.nbytes == 4 * (2 + 2)


def test_a_quantised_product_is_integer_arithmetic_and_its_weight_is_bytes() -> None:
    graph = two_layers()
    first = min(index for index, node in enumerate(graph.nodes) if node.op_type == "MatMul")

    plain, work = (region_work(graph, graph.all_mask, rounded_to=HALF, int8=mask) for mask in (0, 1 << first))

    assert work.flops == {INT8: 2 * 8 * 16 * 32, HALF: 2 * 8 * 32 * 4, FLOAT: 8 * 32}
    assert plain.nbytes - work.nbytes == 3 * 16 * 32
