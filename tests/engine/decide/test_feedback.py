"""Races go on while what kernels take in place makes another plan look better."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from collage.control.tie_breaking import TieBreaking
from collage.decide.feedback import WithFeedback, with_feedback
from collage.decide.races.going_on import NotRacedError
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.shortlist import mixes, singles
from collage.decide.timed import Timed
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.call_sites import site_name
from collage_testing import chain
from tests.engine.decide.steps import USUAL_US, raced, targets
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

NAMES = "abcdef"
TARGETS = [a_target(name) for name in NAMES]
GRAPH = DataflowGraph(chain("Relu", "Exp", "Neg"))
ALONE_US = {
    name: {"Relu": 300.0 if name == "a" else 600.0, "Exp": 300.0 if name == "b" else 600.0, "Neg": 100.0 * (number + 1)}
    for number, name in enumerate(NAMES)
}


def pool(alone_us: Mapping[str, dict[str, float]], *joined: CandidateKernel) -> CandidatePool:
    """Return every target's kernel for all, and for each operator; and what is joined."""
    return pool_of(
        GRAPH,
        by_operator(dict(alone_us), launch_us=0.0),
        *(kernel(GRAPH, target) for target in TARGETS),
        *(kernel(GRAPH, target, name) for target in TARGETS for name in GRAPH.names),
        *joined,
    ).pool


POOL = pool(ALONE_US)


class Race:
    """Times plans by what the last operator takes in place on each target; the others take what they take alone.

    Args:
        neg_us: Microseconds of the last operator, by target.
        most: How often it goes on, at most.
        alone_us: What the others take alone, by target and operator.
    """

    def __init__(
        self,
        neg_us: Mapping[str, float],
        most: int = 99,
        alone_us: Mapping[str, Mapping[str, float]] = ALONE_US,
    ) -> None:
        self._neg_us = neg_us
        self._alone_us = alone_us
        self._most = most
        self.joined: list[list[str]] = []

    def first(self, plans: Sequence[Plan], waiting: Collection[str] = ()) -> EndToEndTimings:
        timed = tuple(self._timed(plan, 0) for plan in plans)
        return EndToEndTimings(timed=timed, failed={}, open=tuple(waiting), waited=bool(waiting))

    def __call__(self, plans: Sequence[Plan], *, after: EndToEndTimings, keep: Collection[str]) -> EndToEndTimings:
        known = {each.name for each in after.timed}
        if len(self.joined) == self._most:
            raise NotRacedError
        self.joined.append([" ".join(targets(plan)) for plan in plans if plan.name not in known])
        return EndToEndTimings(timed=tuple(self._timed(plan, after.end) for plan in plans), failed={})

    def _timed(self, plan: Plan, first_round: int) -> Timed:
        if plan.single:
            return raced(plan, 90000.0, first_round=first_round)
        steps = {site_name(number): self._step_us(each) for number, each in enumerate(plan.kernels)}
        return raced(plan, sum(steps.values()), steps, first_round=first_round)

    def _step_us(self, each: CandidateKernel) -> float:
        target = each.target.name
        operators = [GRAPH.nodes[GRAPH.index_of(name)].op_type for name in each.sub_graph.names]
        return sum(self._neg_us[target] if each == "Neg" else self._alone_us[target][each] for each in operators)


def fed_back(
    race: Race,
    alone_us: Mapping[str, dict[str, float]] = ALONE_US,
    most: int = 1,
    waiting: Collection[str] = (),
    joined: Sequence[CandidateKernel] = (),
) -> WithFeedback:
    candidates = pool(alone_us, *joined)
    plans = [*singles(candidates, TARGETS), *mixes(candidates, 1)]
    return with_feedback(
        candidates,
        plans,
        race.first(plans, waiting),
        race,
        usual_us=USUAL_US,
        most=most,
        seed=0,
        tie_breaking=TieBreaking(),
    )


def test_what_joins_a_race_may_show_that_another_plan_is_better_still() -> None:
    race = Race({"a": 600.0, "b": 450.0, **dict.fromkeys("cdef", 300.0)})

    known = fed_back(race)

    assert race.joined == [["a b b"], ["a b c"]]
    by_name = {plan.name: plan for plan in known.found.plans}
    assert [targets(by_name[f"mixed-{number}"])[-1] for number in (1, 2, 3)] == ["a", "b", "c"]
    assert by_name["mixed-3"].predicted_us == 900.0
    assert {each.name for each in known.timings.timed} == set(by_name)
    assert known.alone_us["mixed-1"] == 700.0


def test_a_race_goes_on_twice_at_most() -> None:
    race = Race(dict(zip(NAMES, (10000.0, 9000.0, 8000.0, 7000.0, 6000.0, 5000.0), strict=True)))

    known = fed_back(race)

    assert race.joined == [["a b b"], ["a b c"]]
    # what the last of them took counts, too
    last = kernel(GRAPH, TARGETS[2], GRAPH.names[2])
    assert (POOL.cost(last), known.found.pool.cost(last)) == (300.0, 8000.0)


def test_mixed_plans_whose_order_is_open_run_on_where_nothing_joins_and_that_is_no_joining() -> None:
    race = Race({name: ALONE_US[name]["Neg"] for name in NAMES})
    known = fed_back(race, waiting=["mixed-1"])
    assert (race.joined, known.timings.open) == ([[]], ())

    race = Race(dict(zip(NAMES, (10000.0, 9000.0, 8000.0, 7000.0, 6000.0, 5000.0), strict=True)))
    fed_back(race, waiting=["mixed-1"])
    assert race.joined == [["a b b"], ["a b c"]]


def test_where_there_is_no_time_left_what_was_learnt_so_far_stands() -> None:
    race = Race({"a": 600.0, "b": 450.0, **dict.fromkeys("cdef", 300.0)}, most=1)

    known = fed_back(race)

    assert race.joined == [["a b b"]]
    assert sorted(plan.name for plan in known.found.plans if not plan.single) == ["mixed-1", "mixed-2"]
    assert "mixed-3" not in known.alone_us
    assert known.found.alike.engine().run().total_us == 900.0  # there is a better one, which nobody raced


def test_nothing_joins_where_kernels_take_in_place_what_they_take_alone() -> None:
    race = Race({name: ALONE_US[name]["Neg"] for name in NAMES})

    fed_back(race)

    assert race.joined == []


@pytest.mark.parametrize(
    ("best_us", "next_us", "joins"), [(400.0, 430.0, True), (10.0, 10.5, False), (10.0, 900.0, False)]
)
def test_a_plan_that_is_one_move_away_races_once_if_enough_is_at_stake(
    best_us: float, next_us: float, joins: bool
) -> None:
    """The next plan looks 3 % worse by a kernel of 43 % of it, or 0.1 % worse by one of 2 %, or far worse like others.

    Of how far off a kernel may be, its share of its own plan counts, or a plan would be worth a race for being slow.
    """
    last_us = {**dict.fromkeys(NAMES, 90000.0), "a": best_us, "f": next_us}
    race = Race({**last_us, "f": 0.9 * best_us})

    known = fed_back(race, {name: {**ALONE_US[name], "Neg": last_us[name]} for name in NAMES})

    assert race.joined == ([["a b f"]] if joins else [])
    by_name = {each.name: each for each in known.timings.timed}
    assert not joins or by_name["mixed-2"].time_us < by_name["mixed-1"].time_us


def test_variants_join_together_with_what_looks_better() -> None:
    """In place the last operator takes 200 on the fastest plan, so one more looks better and one hardly worse."""
    alone_us = {**ALONE_US, "c": {**ALONE_US["c"], "Neg": 210.0}}
    race = Race({**{name: ALONE_US[name]["Neg"] for name in NAMES}, "a": 240.0, "b": 200.0, "c": 210.0})

    fed_back(race, alone_us, most=2)

    assert race.joined == [["a b b", "a b c"]]


@pytest.mark.parametrize(("operator_us", "joins"), [(6000.0, False), (300.0, True)])
def test_a_plan_of_more_kernels_joins_only_if_it_may_save_enough_to_be_kept(operator_us: float, joins: bool) -> None:
    """The fastest plan joins two operators. Apart they look as fast, and may be off by 2.5 % of it, or 11 %."""
    others_us = dict.fromkeys(("Relu", "Exp", "Neg"), 3 * operator_us)
    alone_us = {
        **dict.fromkeys(NAMES, others_us),
        "a": {**others_us, "Relu": operator_us, "Exp": operator_us},
        "b": {**others_us, "Neg": operator_us / 3},
    }
    race = Race({name: each["Neg"] for name, each in alone_us.items()}, alone_us=alone_us)

    fed_back(race, alone_us, joined=[kernel(GRAPH, TARGETS[0], *GRAPH.names[:2])])

    assert race.joined == ([["a a b"]] if joins else [])
