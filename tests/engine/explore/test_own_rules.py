"""Rules of the user's or a plugin's own bind: every kernel of every search is one that the rule proposes."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping

import pytest

from collage.decide.neighbours import reachable_kernels
from collage.explore.exhaustive import explore_exhaustively
from collage.explore.exploration import ExplorationSetup, Explored
from collage.explore.lazy import explore_lazily
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule, propose
from collage_core.fusion import (
    CandidateBounds,
    CombineByPrimitivesRule,
    FusionRule,
    FusionSpec,
    OnlyValidRule,
    OpCallByKindRule,
    RuleContext,
    RuleOutcome,
    SubGraph,
    SubGraphConfig,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.passes.partition_for import partition_for
from collage_testing import chain, crossed, dense, diamond, mnist
from tests.engine.exploring import FakeSource, a_target, empty_pool, rule_of, setup_of

OWNER, OTHER = a_target("owner"), a_target("other")
EVERY = OpCallByKindRule(OpPatternKind.OPAQUE)


class Pairs(FusionRule):
    """Proposes single nodes, and pairs of neighbours that begin with a node of an even number."""

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        single = [1 << index for index in iterate_bits(graph.needs_kernel)]
        pairs = [
            1 << index | 1 << after
            for index in iterate_bits(graph.needs_kernel)
            for after in iterate_bits(graph.successors[index] & graph.needs_kernel)
            if index % 2 == 0
        ]
        found = [SubGraph(graph, nodes) for nodes in (*single, *pairs)]
        return RuleOutcome(sub_graphs=tuple(each for each in found if each.is_convex), refusals={})


RULES: Mapping[str, FusionRule] = {
    "single nodes": EVERY,
    "pairs": Pairs(),
    "at most three deep": OnlyValidRule(CombineByPrimitivesRule(EVERY), SubGraphConfig(max_depth=3)),
    "one input": OnlyValidRule(CombineByPrimitivesRule(EVERY), SubGraphConfig(max_inputs=1)),
    "one exit": OnlyValidRule(CombineByPrimitivesRule(Pairs()), SubGraphConfig(max_exits=1, allow_taps=False)),
}
GRAPHS: Mapping[str, Callable[[], DataflowGraph]] = {
    "chain": lambda: DataflowGraph(chain("Relu", "Neg", "Exp", "Tanh", "Abs", "Sin", "Cos", "Floor", "Erf")),
    "diamond": lambda: DataflowGraph(diamond()),
    "crossed": lambda: DataflowGraph(crossed()),
    "dense": lambda: DataflowGraph(dense()),
    "mnist": lambda: DataflowGraph(mnist()),
}
SLOW = pytest.mark.slow  # many candidates
SEARCHES: Mapping[str, Callable[[ExplorationSetup, CandidatePool], Explored]] = {
    "lazy": explore_lazily,
    "exact": explore_exhaustively,
}


def owned(rule: FusionRule) -> TargetRule:
    return dataclasses.replace(
        rule_of(OWNER), spec=FusionSpec(name="owner", rule=rule, targets=(OWNER,)), own="fusion_specs"
    )


def allowed(rule: TargetRule, graph: DataflowGraph) -> set[int]:
    """The oracle: sets of nodes that need a kernel, as the rule itself says them."""
    found = propose(rule, graph, CandidateBounds(), cuts=None).candidates
    return {each.sub_graph.nodes & graph.needs_kernel for each in found}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("model", [pytest.param(each, marks=SLOW if each == "mnist" else ()) for each in GRAPHS])
@pytest.mark.parametrize("name", RULES)
def test_every_kernel_is_one_that_the_rule_proposes(name: str, model: str, search: str) -> None:
    """Larger kernels are always cheaper, so whoever could merge them would."""
    graph, rule = GRAPHS[model](), owned(RULES[name])
    mine = allowed(rule, graph)
    draw = random.Random(f"{name} {model}")
    prices = {node: draw.uniform(1, 3) for node in graph.names}
    source = FakeSource(lambda c: 50.0 + sum(prices[node] for node in c.sub_graph.names) * (c.target == OWNER or 20))

    found = SEARCHES[search](setup_of(source, [rule, rule_of(OTHER)]), empty_pool(graph, source))

    chosen = [found.pool.candidate(each) for each in found.result.candidates]
    kernels = [each.sub_graph.nodes & graph.needs_kernel for each in chosen if each.target == OWNER]
    assert set(kernels) <= mine
    measured = [names for target, names in source.measured if target == "owner"]
    asked = {sum(1 << graph.index_of(node) for node in names) & graph.needs_kernel for names in measured}
    assert asked <= mine
    assert asked

    plan = as_plan(found.pool, "mixed", found.result, single=False)
    near = list(reachable_kernels(found.pool, [plan], found.proposals))
    assert {each.sub_graph.nodes & graph.needs_kernel for each in near if each.target == OWNER} <= mine


@pytest.mark.parametrize("model", GRAPHS)
@pytest.mark.parametrize("name", RULES)
def test_so_is_every_kernel_that_a_target_is_given_without_a_search(name: str, model: str) -> None:
    graph, rule = GRAPHS[model](), owned(RULES[name])
    context = RuleContext(target=OWNER, bounds=CandidateBounds(), cut_positions=())
    fallback = FusionSpec(name="rest", rule=EVERY, targets=(OTHER,))

    kernels = partition_for(graph, rule.spec, rule.spec.rule.propose(graph, context), context, fallback=fallback)

    given = [each.sub_graph.nodes & graph.needs_kernel for each in kernels.kernels if each.target == OWNER]
    assert given
    assert set(given) <= allowed(rule, graph)
    assert sum(nodes.bit_count() for nodes in given) == len(set(itertools.chain(*map(iterate_bits, given))))


def test_the_default_rule_of_a_target_that_joins_anything_still_merges() -> None:
    graph = GRAPHS["chain"]()
    source = FakeSource(lambda candidate: 50.0)

    found = explore_lazily(setup_of(source, [rule_of(OWNER)]), empty_pool(graph, source))

    assert [found.pool.candidate(each).sub_graph.names for each in found.result.candidates] == [graph.names]
