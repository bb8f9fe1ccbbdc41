"""The strategies of `docs/plugin-authors/fusion-rules.md`: its own examples, and the same trees on a small network."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import collage_core.fusion
from collage_core.contract import Supported, Target
from collage_core.fusion import (
    JOIN_ANYTHING,
    CombineByPrimitivesRule,
    CompositeRule,
    DFPatternRule,
    FusionRule,
    OpCallByKindRule,
    OpPredicateRule,
    RuleContext,
    UnionRule,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import FusionPattern, PatternTable, is_constant, is_op, wildcard
from collage_testing import GraphBuilder

PAGE = Path(__file__).parents[3] / "docs/plugin-authors/fusion-rules.md"
CONV_BIAS = FusionPattern(
    name="lib.conv_bias", pattern=is_op("Add")(is_op("Conv")(wildcard(), is_constant()), is_constant())
)
DENSE = FusionPattern(name="lib.dense", pattern=is_op("MatMul")(wildcard(), is_constant()))


def test_every_example_on_the_page_prints_what_it_says() -> None:
    blocks = re.findall(r"^```pycon\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)

    assert len(test.examples) > 20
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_page_names_every_rule_and_every_combiner() -> None:
    named = {name for name in collage_core.fusion.__all__ if name.endswith(("Rule", "Combiner"))}

    missing = {name for name in named - {"FusionRule", "Combiner"} if f"`{name}(" not in PAGE.read_text("utf-8")}
    assert not missing


@pytest.fixture(scope="module")
def network() -> DataflowGraph:
    """Conv, Add, Relu, MaxPool; then MatMul, Add, Softmax."""
    g = GraphBuilder()
    conv = g.op("Conv", g.input("x", 1, 2, 6, 6), g.weight("w", 3, 2, 3, 3), kernel_shape=[3, 3], name="conv")
    relu = g.op("Relu", g.op("Add", conv, g.weight("b", 3, 1, 1), name="bias"), name="relu")
    flat = g.op("Reshape", g.op("MaxPool", relu, kernel_shape=[4, 4], name="pool"), g.ints(1, 3), name="flat")
    dense = g.op("Add", g.op("MatMul", flat, g.weight("v", 3, 5), name="dense"), g.weight("c", 5), name="shift")
    return DataflowGraph(g.model(g.op("Softmax", dense, name="softmax")))


def proposed(rule: FusionRule, graph: DataflowGraph) -> dict[str, list[str]]:
    """Labels of the parts, by names of the nodes."""
    context = RuleContext(target=Target(toolchain="lib", fingerprint="lib 1"))
    found: dict[str, list[str]] = {}
    for each in rule.candidates(graph, context):
        found.setdefault(" ".join(each.names), []).append("+".join(part.label for part in each.as_parts()))
    return found


def test_classic_fusion_keeps_every_group_on_the_way(network: DataflowGraph) -> None:
    found = proposed(CombineByPrimitivesRule(OpCallByKindRule()), network)

    single = ["conv", "bias", "relu", "pool", "dense", "shift", "softmax"]
    joined = ["conv bias", "bias relu", "conv bias relu", "dense shift", "shift softmax"]
    into_pool = ["relu pool", "bias relu pool"]  # it pools all there is: a reduction
    assert set(found) == {*single, *joined, *into_pool}


def test_predicates_with_whatever_touches(network: DataflowGraph) -> None:
    table = PatternTable()
    for operator in ("Relu", "MaxPool", "Reshape", "MatMul", "Softmax"):
        table.predicate(operator, lambda node: Supported())

    found = proposed(CombineByPrimitivesRule(OpPredicateRule(table), JOIN_ANYTHING), network)

    # the view between pool and dense is inside where both are
    assert set(found) == {
        *("relu", "pool", "dense", "softmax"),
        *("relu pool", "pool flat dense", "relu pool flat dense"),
    }


def test_patterns_with_whatever_touches(network: DataflowGraph) -> None:
    relu = FusionPattern(name="lib.relu", pattern=is_op("Relu")(wildcard()))
    patterns = tuple(CompositeRule(DFPatternRule(each), each.name) for each in (CONV_BIAS, relu, DENSE))

    found = proposed(CombineByPrimitivesRule(UnionRule(patterns), JOIN_ANYTHING), network)

    assert found == {
        "conv bias": ["lib.conv_bias"],
        "relu": ["lib.relu"],
        "dense": ["lib.dense"],
        "conv bias relu": ["lib.conv_bias+lib.relu"],
    }


def test_only_what_was_told(network: DataflowGraph) -> None:
    told = UnionRule((DFPatternRule(CONV_BIAS), DFPatternRule(DENSE)))

    assert proposed(told, network) == {"conv bias": [""], "dense": [""]}


def test_native_fusion_around_a_librarys_groups(network: DataflowGraph) -> None:
    library = tuple(CompositeRule(DFPatternRule(each), each.name) for each in (CONV_BIAS, DENSE))

    found = proposed(CombineByPrimitivesRule(UnionRule((OpCallByKindRule(), *library))), network)

    assert found["conv bias relu"] == ["", "lib.conv_bias"]
    assert found["dense shift"] == ["", "lib.dense"]
    assert found["conv bias"] == ["", "lib.conv_bias"]
    native = proposed(CombineByPrimitivesRule(OpCallByKindRule()), network)
    assert set(found) == set(native), "labels add ways to run the same groups"
