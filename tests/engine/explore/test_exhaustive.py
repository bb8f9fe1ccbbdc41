"""Exploring over a cost source that knows the truth, without a clock or a process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from collage.explore.exhaustive import explore_exhaustively
from collage.explore.exploration import Explored, UncoveredError
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.wire.outcomes import Failed, Refused, Stage
from collage.options import PRESETS, Preset
from collage_core.candidates.explanation import refusals
from collage_core.candidates.proposals import TargetRule, target_rule
from collage_core.contract import Joins
from collage_core.fusion import CandidateKernel, FusionRule, RuleContext, RuleOutcome
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import is_op, wildcard
from collage_core.registry import Toolchain
from collage_testing import MockToolchain, chain
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, rule_of, setup_of

A, B = a_target("a"), a_target("b")
GRAPH = DataflowGraph(chain("Relu", "Neg", "Exp", "Tanh", "Abs", "Relu", shape=(64, 64)))
FAST, POOR = 10.0, 90.0
HALVES = by_operator(
    {
        "a": {"Relu": FAST, "Neg": FAST, "Exp": POOR, "Tanh": POOR, "Abs": POOR},
        "b": {"Relu": POOR, "Neg": POOR, "Exp": FAST, "Tanh": FAST, "Abs": FAST},
    },
    launch_us=5.0,
)


def explore(
    source: FakeSource,
    rules: Sequence[TargetRule],
    *,
    preset: Preset | str = "default",
    budget: Budget = UNLIMITED,
) -> Explored:
    return explore_exhaustively(setup_of(source, rules, preset=preset, budget=budget), empty_pool(GRAPH, source))


def path(explored: Explored) -> list[tuple[str, tuple[str, ...]]]:
    return [(chosen.target, explored.pool.candidate(chosen).sub_graph.names) for chosen in explored.result.candidates]


def test_regions_end_where_the_targets_change_places() -> None:
    explored = explore(FakeSource(HALVES), [rule_of(A), rule_of(B)])

    assert path(explored) == [
        ("a", ("relu_0", "neg_0")),
        ("b", ("exp_0", "tanh_0", "abs_0")),
        ("a", ("relu_1",)),
    ]


def test_a_second_run_over_the_same_database_takes_the_same_steps_and_measures_nothing() -> None:
    first = FakeSource(HALVES)
    explored = explore(first, [rule_of(A), rule_of(B)])
    second = FakeSource(HALVES, first.known)
    repeated = explore(second, [rule_of(A), rule_of(B)])

    assert second.counts.measured == 0
    assert path(repeated) == path(explored)
    assert repeated.result.costs_us == explored.result.costs_us
    assert repeated.rounds == explored.rounds
    assert repeated.left_out == explored.left_out


def test_what_another_run_knows_beyond_this_ones_reach_changes_nothing() -> None:
    first = FakeSource(HALVES)
    explored = explore(first, [rule_of(A), rule_of(B)], preset="quick")
    thorough = FakeSource(HALVES, first.known)
    explore(thorough, [rule_of(A), rule_of(B)], preset="extensive")
    last = FakeSource(HALVES, first.known)
    repeated = explore(last, [rule_of(A), rule_of(B)], preset="quick")

    assert last.counts.measured == 0
    assert (path(repeated), repeated.rounds) == (path(explored), explored.rounds)


def test_a_cost_that_was_too_good_to_be_true_loses_when_it_is_measured_again() -> None:
    lucky: list[CandidateKernel] = []

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        cost = HALVES(candidate)
        whole = candidate.sub_graph.nodes == GRAPH.needs_kernel
        if whole and candidate.target == A and not lucky:
            lucky.append(candidate)
            return 1.0
        return cost

    explored = explore(FakeSource(truth), [rule_of(A), rule_of(B)])

    assert lucky
    assert {target for target, _ in path(explored)} == {"a", "b"}
    assert explored.result.total_us > 50.0


def test_what_is_on_the_path_was_measured_twice() -> None:
    source = FakeSource(HALVES)
    explored = explore(source, [rule_of(A), rule_of(B)])

    for chosen in explored.result.candidates:
        assert len(source.known[explored.pool.cache_key(explored.pool.candidate(chosen))]) == 2


def test_a_node_nobody_takes_is_found_before_anything_is_measured() -> None:
    source = FakeSource(HALVES)

    with pytest.raises(UncoveredError) as caught:
        explore(source, [rule_of(A, refuses=["Exp"]), rule_of(B, refuses=["Exp", "Abs"])])

    assert caught.value.nodes == (GRAPH.index_of("exp_0"),)
    assert source.measured == []
    assert set(caught.value.exploration.proposed.by_target) == {"a", "b"}


def test_a_toolchain_that_fails_everywhere_costs_only_itself() -> None:
    truth = by_operator({"a": {}, "b": dict.fromkeys(("Relu", "Neg", "Exp", "Tanh", "Abs"), 5.0)})
    explored = explore(FakeSource(truth), [rule_of(A), rule_of(B)])

    assert {target for target, _ in path(explored)} == {"b"}


def test_a_target_that_fails_on_the_whole_model_is_cut_until_something_covers_every_node() -> None:
    works = by_operator({"a": dict.fromkeys(("Relu", "Neg", "Exp", "Tanh", "Abs"), 5.0)})

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        if candidate.sub_graph.nodes.bit_count() > 1:
            return Refused(reason="too large")
        return works(candidate)

    preset = dataclasses.replace(PRESETS["quick"], operators=0)
    explored = explore(FakeSource(truth), [rule_of(A)], preset=preset)

    assert len(explored.result.candidates) == len(GRAPH)


def test_what_nobody_runs_alone_is_covered_by_groups() -> None:
    groups = {"one": is_op("Neg")(is_op("Relu")(wildcard())), "other": is_op("Tanh")(is_op("Exp")(wildcard()))}
    library = a_target("a", joins=Joins.NONE)
    mocks = [
        MockToolchain("a", costs_us={}, patterns=groups, targets=[library]),
        MockToolchain("b", costs_us={}, operators=["Abs", "Relu"], targets=[B]),
    ]
    rules = [
        target_rule(Toolchain(mock.name, mock), target, {}) for mock, target in zip(mocks, (library, B), strict=True)
    ]
    explored = explore(FakeSource(HALVES), rules, preset=dataclasses.replace(PRESETS["quick"], operators=0))

    assert path(explored)[:2] == [("a", ("relu_0", "neg_0")), ("a", ("exp_0", "tanh_0"))]


def test_after_the_budget_whole_models_are_measured_and_nothing_else() -> None:
    source = FakeSource(HALVES)
    explored = explore(source, [rule_of(A), rule_of(B)], budget=Budget.begin(-1.0))

    assert source.measured == [("a", GRAPH.names), ("b", GRAPH.names)]
    assert [names for _, names in path(explored)] == [GRAPH.names]
    assert any("the budget ended before" in sentence for sentence in explored.left_out)


def test_after_the_budget_operators_that_nothing_else_covers_are_measured() -> None:
    source = FakeSource(HALVES)
    explored = explore(source, [rule_of(A, refuses=["Tanh"]), rule_of(B, refuses=["Relu"])], budget=Budget.begin(-1.0))

    assert all(len(names) == 1 for _, names in source.measured)
    assert len(path(explored)) == len(GRAPH)


def test_a_library_of_single_kernels_is_not_merged() -> None:
    library = a_target("a", joins=Joins.NONE)
    explored = explore(FakeSource(HALVES), [rule_of(library), rule_of(B)])

    assert all(len(nodes) == 1 for target, nodes in path(explored) if target == "a")


def test_what_a_bound_left_unmeasured_is_said() -> None:
    preset = dataclasses.replace(PRESETS["quick"], operators=1)
    explored = explore(FakeSource(HALVES), [rule_of(A)], preset=preset)

    assert any("were not measured (preset quick)" in sentence for sentence in explored.left_out)


class Fickle(FusionRule):
    """A plugin's own rule: what the default would be, and from some call on an error."""

    def __init__(self, default: FusionRule, good: int) -> None:
        self._default = default
        self._left = good

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("out of patterns")
        return self._default.propose(graph, context)


@pytest.mark.guards(
    "a predicate or a plugin's own rule hangs; its rule raises, answers wrongly, or proposes what can be no kernel"
)
@pytest.mark.parametrize("good", [0, 1])
def test_a_rule_that_fails_costs_its_target_what_it_had_not_proposed(good: int) -> None:
    fickle = rule_of(A)
    spec = dataclasses.replace(fickle.spec, rule=Fickle(fickle.spec.rule, good))
    explored = explore(
        FakeSource(HALVES), [dataclasses.replace(fickle, spec=spec, own="collage_fusion_spec"), rule_of(B)]
    )

    [failure] = explored.failures
    assert (failure.target, failure.stage, failure.reason) == (A, "fusion_spec", "RuntimeError: out of patterns")
    assert ("a" in {name for name, _ in path(explored)}) == bool(good)
    [fact] = refusals((), explored.failures, pool=explored.pool)
    assert (fact.target, fact.stage, fact.nodes) == ("a", "fusion_spec", ())


def hanging(candidate: CandidateKernel) -> float | Refused | Failed:
    """Costs as `HALVES`, where `a` hangs on everything."""
    if candidate.target == A:
        return Failed(stage=Stage.LOWER, reason="worker deadline: it did not answer in time and was killed")
    return HALVES(candidate)


def test_a_target_that_does_nothing_but_hang_is_given_up_and_the_report_says_so() -> None:
    source = FakeSource(hanging)
    explored = explore(source, [rule_of(A), rule_of(B)])
    repeated = explore(FakeSource(hanging, source.known), [rule_of(A), rule_of(B)])

    assert [name for name, _ in source.measured].count("a") == 4
    assert {name for name, _ in path(explored)} == {"b"}
    [said] = [sentence for sentence in explored.left_out if "hung" in sentence]
    assert said.startswith("a hung on the first 4 candidates that were tried; ")
    assert repeated.left_out == explored.left_out
    assert path(repeated) == path(explored)


def test_a_target_that_hangs_now_and_then_is_not_given_up() -> None:
    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        return HALVES(candidate) if candidate.sub_graph.names == ("exp_0",) else hanging(candidate)

    source = FakeSource(truth)
    explored = explore(source, [rule_of(A), rule_of(B)])

    assert [name for name, _ in source.measured].count("a") > 4
    assert not [sentence for sentence in explored.left_out if "hung" in sentence]
