"""Levels of a partitioned model, against the model itself."""

from __future__ import annotations

import dataclasses
import itertools

import onnx
import onnx_ir
import pytest

from collage.report.facts.record import Record, RegionFacts
from collage.report.picture import outline
from collage.report.picture.outline import ROOT, Level, outlined
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.io.inference import infer_model
from collage_core.passes.apply import apply_partitioning
from collage_testing.graphs import GraphBuilder
from tests.core.candidates.making import a_target
from tests.engine.report.records import RECORD


def chain(length: int) -> onnx_ir.Model:
    """`relu_0 exp_0 relu_1 ...`, with a skip over every fourth."""
    g = GraphBuilder("chain")
    value = g.input("x", 1, 8)
    for number in range(length):
        step = g.op("Relu" if number % 2 == 0 else "Tanh", value)
        value = g.op("Add", step, value) if number % 4 == 3 else step
    return g.model(value)


def partitioned(model: onnx_ir.Model, cuts: list[int]) -> tuple[onnx_ir.Model, Record]:
    """The model with a kernel between each two cuts, and its record."""
    graph = DataflowGraph(model)
    target = a_target("fast")
    spec = FusionSpec(name="fast", rule=OpCallByKindRule(), targets=(target,))
    bounds = [0, *cuts, len(graph.nodes)]
    kernels, regions = [], []
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        mask = sum(1 << index for index in range(start, end))
        kernels.append(CandidateKernel(SubGraph(graph, mask), spec))
        regions.append(
            RegionFacts(
                id=f"k{number:04d}",
                toolchain="fast",
                target="fast",
                composite="",
                nodes=tuple(graph.names[index] for index in iterate_bits(mask)),
                operators=tuple(graph.nodes[index].op_type for index in iterate_bits(mask)),
                cost_us=float(end - start),
            )
        )
    record = dataclasses.replace(RECORD, regions=tuple(regions))
    return apply_partitioning(Partitioning(graph, tuple(kernels))), record


def check(levels: tuple[Level, ...]) -> None:
    """What holds of all levels."""
    keys = [level.key for level in levels]
    assert len(keys) == len(set(keys))
    assert levels[0].key == ROOT
    assert levels[0].above == ""
    opened = {box.opens for level in levels for box in level.boxes if box.opens}
    assert opened == set(keys) - {ROOT}
    assert all(level.above in keys for level in levels[1:])
    for level in levels:
        written = {name for box in level.boxes for name in box.writes}
        assert all(name in written for box in level.boxes for name in box.reads), "every line has both ends"
        assert len([box for box in level.boxes if box.kind not in ("input", "output")]) <= outline.MOST_BOXES


def test_kernels_are_on_the_first_level_and_open_their_operators() -> None:
    model, record = partitioned(chain(7), [3, 5])

    levels = outlined(model, record)

    check(levels)
    first, *kernels = levels
    assert [(box.kind, box.region) for box in first.boxes] == [
        *(("kernel", f"k000{number}") for number in range(3)),
        ("input", ""),
        ("output", ""),
    ]
    assert [[box.label for box in level.boxes if box.kind == "operator"] for level in kernels] == [
        list(region.operators) for region in record.regions
    ]
    assert [box.share for box in first.boxes[:3]] == pytest.approx([3 / 8, 2 / 8, 3 / 8])


def test_boxes_know_types_and_shapes_of_what_goes_between_them() -> None:
    model, record = partitioned(chain(4), [2])

    first, *kernels = outlined(model, record)

    assert set(first.values.values()) == {"float[1,8]"}
    assert all(set(level.values.values()) == {"float[1,8]"} for level in kernels)


def test_what_a_branch_captures_is_read() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[1] x, bool c) => (float[1] y)
        {
            a = Relu (x)
            y = If (c) <
                then_branch = t () => (float[1] z) { z = Neg (a) },
                else_branch = e () => (float[1] w) { w = Abs (a) }
            >
        }
    """)
    given = onnx_ir.from_proto(proto)
    infer_model(given)
    model, record = partitioned(given, [])

    levels = outlined(model, record)

    check(levels)
    [branch] = [box for level in levels for box in level.boxes if box.label == "If"]
    [relu] = [box for level in levels for box in level.boxes if box.label == "Relu"]
    assert set(relu.writes) <= set(branch.reads)


def test_of_many_inputs_the_rest_is_one_box() -> None:
    g = GraphBuilder("wide")
    model, record = partitioned(g.model(g.op("Sum", *(g.input(f"x{n}", 4) for n in range(60)))), [])

    first, *_ = outlined(model, record)

    inputs = [box for box in first.boxes if box.kind == "input"]
    assert [box.label for box in inputs][-1] == "36 inputs more"
    assert sum(len(box.writes) for box in inputs) == 60
    check((first, *_))


def test_a_level_that_is_too_large_is_cut_into_groups_that_open_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "MOST_BOXES", 6)
    model, record = partitioned(chain(60), list(range(2, 40, 2)))

    levels = outlined(model, record)

    check(levels)
    drawn = [box.detail for level in levels for box in level.boxes if box.kind == "operator"]
    assert len(drawn) == len(set(drawn)) == sum(len(region.nodes) for region in record.regions)


def test_ten_thousand_operators_are_in_levels_that_can_be_read() -> None:
    model, record = partitioned(chain(8_000), [])

    levels = outlined(model, record)

    check(levels)
    assert sum(box.kind == "operator" for level in levels for box in level.boxes) == 10_000
