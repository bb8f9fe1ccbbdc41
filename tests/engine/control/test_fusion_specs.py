from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from collage.control.fusion_specs import with_own_rules
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.proposals import propose
from collage_core.contract import Target
from collage_core.errors import PluginError, UsageError
from collage_core.fusion import (
    CandidateBounds,
    CompositeRule,
    DFPatternRule,
    FusionRule,
    OnlyValidRule,
    OpCallByKindRule,
    RuleContext,
    RuleOutcome,
    SubGraph,
    SubGraphConfig,
    UnionRule,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import FusionPattern, is_op, wildcard
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, rule_of

A, B, C = a_target("a"), a_target("b"), a_target("c")
PAIR = CompositeRule(DFPatternRule(FusionPattern(name="pair", pattern=is_op("Exp")(is_op("Relu")(wildcard())))), "pair")


def graph() -> DataflowGraph:
    g = GraphBuilder()
    return DataflowGraph(g.model(g.op("Tanh", g.op("Exp", g.op("Relu", g.input("x", 4))))))


def names(rule: Any, workload: DataflowGraph) -> list[tuple[str, ...]]:
    return [candidate.sub_graph.names for candidate in propose(rule, workload, CandidateBounds()).candidates]


def test_a_rule_for_several_targets_is_one_spec_whose_candidates_each_of_them_may_run() -> None:
    workload = graph()

    rules = with_own_rules([rule_of(A), rule_of(B), rule_of(C)], {"a,b": UnionRule((PAIR, OpCallByKindRule()))})

    assert rules[0].spec is rules[1].spec
    assert rules[0].spec.targets == (A, B)
    assert rules[2].spec.targets == (C,)
    found = propose(rules[1], workload, CandidateBounds()).candidates
    assert [(each.target, each.sub_graph.names, each.sub_graph.label) for each in found] == [
        (B, ("relu_0", "exp_0"), "pair"),
        (B, ("relu_0",), ""),
        (B, ("exp_0",), ""),
        (B, ("tanh_0",), ""),
    ]


@dataclasses.dataclass(frozen=True)
class Counted(FusionRule):
    """Single nodes that are not refused, and how often that was asked for, by whom."""

    asked: list[str]

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        self.asked.append(context.target.name)
        return OpCallByKindRule().propose(graph, context)


def test_a_rule_for_several_targets_runs_once_for_those_that_refuse_the_same() -> None:
    workload = graph()
    counted = Counted([])
    rules = with_own_rules([rule_of(A), rule_of(B), rule_of(C)], {"a,b,c": counted})
    assert propose_all(rules, workload, CandidateBounds()).covered == workload.all_mask
    assert counted.asked == ["a"]

    counted.asked.clear()
    refuses = rule_of(B, query={workload.index_of("exp_0"): "not here"})
    found = propose_all(
        with_own_rules([rule_of(A), refuses, rule_of(C)], {"a,b,c": counted}), workload, CandidateBounds()
    ).by_target

    assert counted.asked == ["a", "b"]
    assert [each.sub_graph.names for each in found["b"].candidates] == [("relu_0",), ("tanh_0",)]
    for target in (A, C):
        assert [each.target for each in found[target.name].candidates] == [target] * 3


def test_candidates_of_a_shared_spec_compete() -> None:
    workload = graph()
    costs = {"a": {"Relu": 1.0, "Exp": 1.0, "Tanh": 9.0}, "b": {"Relu": 9.0, "Exp": 9.0, "Tanh": 1.0}}
    source: Any = FakeSource(by_operator(costs))
    pool = empty_pool(workload, source, 0.0)
    for rule in with_own_rules([rule_of(A), rule_of(B)], {"a,b": UnionRule((PAIR, OpCallByKindRule()))}):
        pool = pool.with_candidates(propose(rule, workload, CandidateBounds()).candidates)
    source.measure(list(pool))

    result = pool.engine().run()

    assert [(c.target, c.label) for c in result.candidates] == [("a", "pair"), ("b", "")]


def test_a_function_wraps_the_rule_each_target_would_have_had() -> None:
    workload = graph()

    def at_most_two(target: Target, default: FusionRule) -> FusionRule:
        return OnlyValidRule(default, SubGraphConfig(max_depth=1 if target == A else 2))

    rules = with_own_rules([rule_of(A), rule_of(B)], {"a,b": at_most_two})

    assert max(map(len, names(rules[0], workload))) == 1
    assert max(map(len, names(rules[1], workload))) == 2


def test_a_rule_that_proposes_nonsense_costs_its_target_and_is_said_to_be_the_users() -> None:
    class Hollow(FusionRule):
        def propose(self, graph: DataflowGraph, context: object) -> RuleOutcome:
            return RuleOutcome(sub_graphs=(SubGraph(graph, 0b101),))

    [rule] = with_own_rules([rule_of(A)], {"a": Hollow()})

    with pytest.raises(
        PluginError, match="failed in fusion_specs: its rule proposed a sub-graph out of which"
    ) as error:
        propose(rule, graph(), CandidateBounds())
    assert error.value.toolchain == "a"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d": PAIR}, "no such target takes part; those that do: a, b"),
        ({"a": PAIR, "a,b": PAIR}, "a is named by more than one"),
        ({"a": lambda target, default: "no rule"}, "gives str, not a FusionRule"),
        ({"a": 3}, "gives int, not a FusionRule"),
        ({"a(": PAIR}, "is not a target"),
    ],
)
def test_what_is_no_rule_of_anybody_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_own_rules([rule_of(A), rule_of(B)], given)
