"""The matcher against enumeration, on random graphs and patterns that use all of the language."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator

import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match, Matcher, Mismatch
from tests.core.patterns import specs
from tests.core.patterns.oracle import Oracle, Way, parts, used_several_times
from tests.core.patterns.random_patterns import OPSET, PatternMaker, random_graph
from tests.core.patterns.specs import Spec, built, children

PATTERNS_PER_GRAPH = 6

Found = tuple[frozenset[int], dict[str, tuple[onnx_ir.Value, ...]]]
"""Nodes inside, and captured values by name."""


def compared(rng: random.Random) -> Iterator[tuple[Spec, int, int]]:
    """Compares on one graph, pattern by pattern; tells at how many nodes each matched and did not."""
    graph = DataflowGraph(random_graph(rng))
    oracle = Oracle(graph.nodes, graph.model.graph.outputs, OPSET)
    maker = PatternMaker(rng, graph.nodes)
    for _ in range(PATTERNS_PER_GRAPH):
        pattern = maker.pattern()
        matcher = Matcher(built(pattern, {}))
        expected = oracle.matches(pattern)
        for root in range(len(graph)):
            assert told(matcher.match(graph, root)) == enumerated(expected.get(root)), (graph.names[root], pattern)
        yield pattern, len(expected), len(graph) - len(expected)


def told(found: Match | Mismatch) -> Found | None:
    if isinstance(found, Mismatch):
        return None
    return frozenset(node.index for node in found.contexts), {name: found.all_captured(name) for name in found.captures}


def enumerated(way: Way | None) -> Found | None:
    if way is None:
        return None
    captures: dict[str, tuple[onnx_ir.Value, ...]] = {}
    for name, value in way.captures:
        captures[name] = (*captures.get(name, ()), value)
    return way.nodes, captures


@pytest.mark.slow  # the test below compares the same with 200 seeds
@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_matcher_finds_what_enumeration_finds_and_prefers_the_same(rng: random.Random) -> None:
    for _ in compared(rng):
        pass


def test_random_patterns_use_all_of_the_language_where_it_matches_and_where_it_does_not() -> None:
    matching: collections.Counter[str] = collections.Counter()
    failing: collections.Counter[str] = collections.Counter()
    triples = 0
    for seed in range(200):
        for pattern, matched, failed in compared(random.Random(seed)):
            triples += matched + failed
            used = features(pattern)
            matching.update(used if matched else ())
            failing.update(used if failed else ())

    assert triples > 3000
    for feature in (*FEATURES, "shared"):
        assert matching[feature] >= 5, feature
        assert failing[feature] >= 5, feature


FEATURES: dict[str, Callable[[Spec], bool]] = {
    "wildcard": lambda spec: isinstance(spec, specs.Any),
    "absent": lambda spec: isinstance(spec, specs.Absent),
    "constant": lambda spec: isinstance(spec, specs.Const),
    "input": lambda spec: isinstance(spec, specs.Given),
    "any operator": lambda spec: isinstance(spec, specs.Op) and not spec.types,
    "one output": lambda spec: isinstance(spec, specs.Op) and spec.output is not None,
    "version": lambda spec: isinstance(spec, specs.Op) and spec.versions != (None, None),
    "attribute": lambda spec: isinstance(spec, specs.Op) and spec.axis is not None,
    "forced order": lambda spec: isinstance(spec, specs.Op) and spec.any_order is not None,
    "commutative": lambda spec: isinstance(spec, specs.Op) and len(spec.operands or ()) > 1 and "Add" in spec.types,
    "further operands": lambda spec: isinstance(spec, specs.Op) and spec.rest is not None and spec.rest.each is None,
    "variadic": lambda spec: isinstance(spec, specs.Op) and spec.rest is not None and spec.rest.each is not None,
    "or": lambda spec: isinstance(spec, specs.Or),
    "optional": lambda spec: isinstance(spec, specs.Optional),
    "and": lambda spec: isinstance(spec, specs.And),
    "not": lambda spec: isinstance(spec, specs.Non),
    "named": lambda spec: isinstance(spec, specs.Named),
    "typed": lambda spec: isinstance(spec, specs.Typed),
    "used by": lambda spec: isinstance(spec, specs.UsedBy) and spec.by is not None and not spec.only,
    "only used by": lambda spec: isinstance(spec, specs.UsedBy) and spec.by is not None and spec.only,
    "used once": lambda spec: isinstance(spec, specs.UsedBy) and spec.by is None,
    "chain": lambda spec: isinstance(spec, specs.Chain),
    "dominator": lambda spec: isinstance(spec, specs.Dominates),
}


def features(pattern: Spec) -> set[str]:
    """What of the language a pattern uses."""
    inside = parts(pattern, children)
    found = {feature for feature, holds in FEATURES.items() if any(map(holds, inside))}
    return found | {"shared"} if used_several_times(pattern) else found
