"""The page of what toolchains for GPUs take: its rows are the code's, and its counts those of papers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from tests.exports.blocks import blocks
from tests.resnext import DEPTHS

for plugin in ("collage_cudnn", "collage_cutlass", "collage_tensorrt"):
    pytest.importorskip(plugin, reason=f"{plugin}, of which the page tells, is not installed")

from benchmarks.gpu_claims import (  # noqa: E402
    CLAIMANTS,
    DTYPES,
    HEAD,
    PAGE,
    SOURCES,
    attention,
    convolutions,
    graph_of,
    page,
    row,
)
from collage_tensorrt.editions import RTX  # noqa: E402

BLOCKS = sum(DEPTHS)
COUNTS: Mapping[str, tuple[int, ...]] = {
    # a stem, three in each block and a projection in each stage; two in each block are activated, and what it adds
    **dict.fromkeys(("resnet50", "resnext50"), (1 + 3 * BLOCKS + len(DEPTHS), 1 + 2 * BLOCKS, BLOCKS)),
    **{name: (blocks(name).attention,) for name in ("bert", "vit", "gpt2")},
}
QUICK = ("resnext50", "bert")


@functools.cache
def written() -> dict[tuple[str, str], tuple[str, ...]]:
    """The page's rows, by title and toolchain."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    cells = [tuple(cell.strip() for cell in line.strip("| ").split(" | ")) for line in rows]
    return {(each[0], each[1]): each for each in cells}


def test_the_page_has_a_row_for_each_model_and_toolchain() -> None:
    assert set(written()) == {(source.title, name) for source in SOURCES.values() for name in CLAIMANTS}


@pytest.mark.parametrize("name", COUNTS)
def test_what_there_is_is_what_papers_and_configurations_say(name: str) -> None:
    for toolchain in CLAIMANTS:
        for cell in written()[SOURCES[name].title, toolchain][2:]:
            said = re.findall(r"(?:all|of) (\d+)", cell.partition(":")[0])
            assert tuple(map(int, said)) == COUNTS[name]


def test_nothing_is_left_without_a_reason() -> None:
    for (title, toolchain), (_, _, *cells) in written().items():
        for dtype, cell in zip(DTYPES, cells, strict=True):
            all_taken = "none of" not in cell and cell.count("all ") == cell.count(",") + 1
            assert all_taken or ": " in cell, (title, toolchain, dtype)
            assert "no reason given" not in cell


@pytest.mark.parametrize("toolchain", CLAIMANTS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SOURCES]
)
def test_a_row_is_what_the_code_says(name: str, toolchain: str) -> None:
    ask(toolchain)

    assert written()[SOURCES[name].title, toolchain] == row(name, toolchain)


def ask(toolchain: str) -> None:
    if CLAIMANTS[toolchain].asks:
        try:
            RTX.find()
        except ImportError as error:
            pytest.skip(f"TensorRT for RTX is not installed: {error}")


@pytest.mark.slow
def test_the_page_is_what_the_command_prints() -> None:
    for toolchain in CLAIMANTS:
        ask(toolchain)

    assert page() == PAGE.read_text(encoding="utf-8")


def test_an_add_of_two_convolutions_is_one_thing_that_either_may_have() -> None:
    g = GraphBuilder("block")
    x = g.input("x", 1, 8, 4, 4)
    left, right = (g.op("Conv", x, g.weight(f"w{side}", 8, 8, 1, 1)) for side in range(2))
    graph = DataflowGraph(g.model(g.op("Relu", g.op("Add", left, right))))

    alone, activated, added = (part.things for part in convolutions(graph))

    assert alone == ((0b0001,), (0b0010,))
    assert activated == ()
    assert added == ((0b1101, 0b1110),)


def test_an_attention_block_is_both_products_and_the_softmax_between() -> None:
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, 2, 4, 4) for name in "qkv")
    weighted = g.op("MatMul", g.op("Softmax", g.op("Tanh", g.op("MatMul", q, k))), v)
    graph = DataflowGraph(g.model(g.op("MatMul", weighted, v)))

    [part] = attention(graph)

    assert part.things == ((0b01101,),)


def test_casting_a_model_leaves_what_there_is() -> None:
    single, half = (graph_of("resnext50", dtype) for dtype in DTYPES)

    assert convolutions(single) == convolutions(half)
