"""The lazy exploration where time runs out, and where candidates or targets fail."""

from __future__ import annotations

import pytest

from collage.explore.exhaustive import explore_exhaustively
from collage.measure.budget import Budget
from collage.measure.wire.outcomes import Failed, Refused, Stage
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel
from tests.engine.explore.halves import GRAPH, HALVES, OPERATORS, A, B, explored, path
from tests.engine.exploring import FakeSource, by_operator, rule_of


def test_after_the_budget_whole_models_are_measured_and_nothing_else() -> None:
    source = FakeSource(HALVES)

    found = explored(source, budget=Budget.begin(-1.0))

    assert source.measured == [("a", GRAPH.names), ("b", GRAPH.names)]
    assert any("the budget ended before" in sentence for sentence in found.left_out)


def test_after_the_budget_operators_that_nothing_else_covers_are_measured() -> None:
    source = FakeSource(HALVES)

    found = explored(source, [rule_of(A, refuses=["Tanh"]), rule_of(B, refuses=["Relu"])], budget=Budget.begin(-1.0))

    assert len(path(found)) == len(GRAPH)


def test_once_candidates_ran_for_long_enough_no_more_is_measured_but_the_plan_again() -> None:
    source, unlimited = FakeSource(HALVES), FakeSource(HALVES)

    found = explored(source, running_s=10.0)
    explored(unlimited)

    distinct = list(dict.fromkeys(source.measured))
    assert len(distinct) == 10  # a second each
    assert distinct == list(dict.fromkeys(unlimited.measured))[:10]
    assert set(path(found)) <= set(distinct)
    assert all(source.measured.count(each) == 2 for each in path(found))  # confirmed
    assert "no more was measured once candidates had run for 10 s (preset default)" in found.left_out


def test_where_candidates_ran_for_long_enough_a_later_run_stops_at_the_same_point() -> None:
    source = FakeSource(HALVES)
    found = explored(source, running_s=10.0)
    filled = FakeSource(HALVES)
    explored(filled, explore=explore_exhaustively, preset="extensive")
    again = FakeSource(HALVES, known={key: records[:1] for key, records in filled.known.items()})

    assert path(explored(again, running_s=10.0)) == path(found)
    assert {names for _, names in again.measured} == {names for _, names in path(found)}  # confirmed
    second = FakeSource(HALVES, known=source.known)
    assert path(explored(second, running_s=10.0)) == path(found)
    assert not second.measured


def test_a_node_nobody_takes_is_found_before_anything_is_measured() -> None:
    source = FakeSource(HALVES)

    with pytest.raises(NoCoverError) as caught:
        explored(source, [rule_of(A, refuses=["Exp"]), rule_of(B, refuses=["Exp", "Abs"])])

    assert caught.value.nodes == (GRAPH.index_of("exp_0"),)
    assert source.measured == []


def test_a_toolchain_that_fails_everywhere_costs_only_itself() -> None:
    truth = by_operator({"a": {}, "b": dict.fromkeys(OPERATORS, 5.0)})

    found = explored(FakeSource(truth))

    assert {target for target, _ in path(found)} == {"b"}


@pytest.mark.parametrize("least", [2, 7])
def test_a_kernel_that_fails_when_it_is_measured_in_full_is_replaced_by_smaller_ones(least: int) -> None:
    """Though nothing else runs its operators, and none of them was looked at."""
    whole = by_operator({"a": dict.fromkeys(OPERATORS, 10.0)}, launch_us=5.0)
    seen: dict[str, int] = {}

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        key = candidate.sub_graph.structural_hash
        seen[key] = seen.get(key, 0) + 1
        is_wrong = len(candidate.sub_graph.names) >= least and seen[key] > 1
        return Failed(stage=Stage.CHECK, reason="wrong numbers after many calls") if is_wrong else whole(candidate)

    found = explored(FakeSource(truth), [rule_of(A)])

    assert all(len(names) < least for _, names in path(found))


def test_a_target_that_hangs_is_given_up() -> None:
    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        if candidate.target == A:
            return Failed(stage=Stage.LOWER, reason="worker deadline: it did not answer in time and was killed")
        return HALVES(candidate)

    source = FakeSource(truth)
    found = explored(source)

    assert [name for name, _ in source.measured].count("a") == 4
    assert {name for name, _ in path(found)} == {"b"}
    [said] = [sentence for sentence in found.left_out if "hung" in sentence]
    others = int(said.split("; ")[1].split()[0])
    assert others <= len({found.pool.cache_key(c) for c in found.pool if c.target == A}) - 4
