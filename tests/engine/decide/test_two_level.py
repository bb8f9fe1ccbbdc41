"""The second level over races that are made up: latencies that kernels alone do not show."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence

from collage.decide.decision import decide
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.shortlist import mixes, singles
from collage.decide.timed import Timed
from collage.decide.two_level import NAME, Improved, improved
from collage.measure.wire.outcomes import Refused
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals, propose
from collage_core.contract import Target
from collage_core.fusion import CandidateBounds, CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search.two_level import TwoLevelLimits
from collage_testing import chain
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, kernel, rule_of

A, B = a_target("a"), a_target("b")
OPERATORS = ("Relu", "Exp", "Neg", "Abs", "Tanh", "Sin")
TRUTH = by_operator(
    {
        "a": dict(zip(OPERATORS, (10.0, 30.0, 10.0, 60.0, 60.0, 60.0), strict=True)),
        "b": dict(zip(OPERATORS, (60.0, 20.0, 60.0, 21.0, 26.0, 22.0), strict=True)),
    },
    launch_us=0.0,
)


class Track:
    """Races plans: what their kernels take, and so much for each change of targets."""

    def __init__(self, change_us: float = 0.0, fails: Callable[[Plan], bool] = lambda plan: False) -> None:
        self._change_us = change_us
        self._fails = fails
        self.races: list[list[str]] = []

    def latency_us(self, plan: Plan) -> float:
        changes = sum(a.target != b.target for a, b in itertools.pairwise(plan.kernels))
        total = 0.0
        for each in plan.kernels:
            cost = TRUTH(each)
            assert isinstance(cost, float)
            total += cost
        return total + changes * self._change_us

    def run(self, plans: Sequence[Plan]) -> EndToEndTimings:
        self.races.append([plan.name for plan in plans])
        rng = random.Random(len(self.races))
        timed = []
        for plan in plans:
            if not self._fails(plan):
                noisy = [[self.latency_us(plan) * rng.uniform(0.999, 1.001) for _ in range(3)] for _ in range(6)]
                timed.append(
                    Timed(
                        name=plan.name,
                        single=plan.single,
                        kernels=len(plan.kernels),
                        toolchains=len(plan.toolchains),
                        rounds_us=tuple(map(tuple, noisy)),
                    )
                )
        return EndToEndTimings(timed=tuple(timed), failed={p.name: "it fails" for p in plans if self._fails(p)})


def first_level() -> tuple[CandidatePool, FakeSource, list[Plan], dict[str, Proposals]]:
    graph = DataflowGraph(chain(*OPERATORS))
    source = FakeSource(TRUTH)
    candidates = [kernel(graph, target, name) for target in (A, B) for name in graph.names]
    candidates += [kernel(graph, target) for target in (A, B)]
    pool = empty_pool(graph, source, 0.0).with_candidates(candidates)
    source.measure(candidates)
    proposals = {t.name: propose(rule_of(t), graph, CandidateBounds(), cuts=()) for t in (A, B)}
    return pool, source, [*singles(pool, [A, B]), *mixes(pool, 2)], proposals


def second_level(
    track: Track,
    judge: Track | None = None,
    refuses: Callable[[CandidateKernel], bool] = lambda candidate: False,
    afresh: Callable[[Sequence[Plan]], EndToEndTimings] | None = None,
) -> tuple[Improved, list[Plan]]:
    pool, source, plans, proposals = first_level()

    def measure(candidate: CandidateKernel) -> None:
        if refuses(candidate):
            source.known[pool.cache_key(candidate)] = [Refused(reason="too large")]
        else:
            source.measure([candidate])

    found = improved(
        pool,
        plans,
        track.run(plans),
        proposals,
        judge=(judge or track).run,
        race=afresh or track.run,
        measure=measure,
        limits=TwoLevelLimits(evaluations=24, patience=4),
        stop=lambda: False,
    )
    return found, plans


def test_a_plan_that_changes_targets_less_often_is_found_and_has_costs() -> None:
    track = Track(change_us=14.0)

    found, plans = second_level(track)

    [made] = [plan for plan in found.plans if plan.name == NAME]
    latencies = [track.latency_us(plan) for plan in plans]
    assert track.latency_us(made) < 0.95 * min(latencies)
    assert all(cost > 0 for cost in made.costs_us)
    assert NAME in {each.name for each in found.timings.timed}
    assert "of its start's time" in found.note
    assert found.trace["afresh"]["ratio"] < 0.95
    assert len(found.trace["evaluations"]) > len(plans)


def test_where_kernels_alone_tell_all_there_is_no_gain_and_it_says_so() -> None:
    found, plans = second_level(Track())

    assert [plan.name for plan in found.plans] == [plan.name for plan in plans]  # names: plans print all of a graph
    assert "no gain" in found.note
    assert NAME not in {each.name for each in found.timings.timed}


def test_what_only_seemed_faster_is_timed_afresh_and_not_taken() -> None:
    class Lucky(Track):
        def latency_us(self, plan: Plan) -> float:
            return super().latency_us(plan) * (0.5 if plan.name.startswith("move") else 1.0)

    track = Track()

    found, plans = second_level(track, judge=Lucky())

    assert [plan.name for plan in found.plans] == [plan.name for plan in plans]  # names: plans print all of a graph
    assert "not faster than its start beyond doubt" in found.note
    assert NAME in track.races[-1]
    assert NAME not in {each.name for each in found.timings.timed}
    assert {each.name for each in found.timings.timed} == {plan.name for plan in plans}
    assert found.trace["afresh"]["ci95"][1] >= 1


def stretched(timings: EndToEndTimings, factors: Mapping[str, Sequence[float]]) -> EndToEndTimings:
    """The same race with each round of some contenders so many times as long."""
    timed = []
    for each in timings.timed:
        slower = factors.get(each.name, (1.0,))
        rounds = (tuple(x * slower[at % len(slower)] for x in own) for at, own in enumerate(each.rounds_us))
        timed.append(dataclasses.replace(each, rounds_us=tuple(rounds)))
    return dataclasses.replace(timings, timed=tuple(timed))


def test_a_race_that_shows_no_gain_does_not_reopen_what_was_decided() -> None:
    track = Track(change_us=5.0)
    _, _, plans, _ = first_level()
    before = track.run(plans)
    kept = decide(before.timed, 0).winner
    mixed = {plan.name for plan in plans if not plan.single}
    assert kept in mixed

    def storm(again: Sequence[Plan]) -> EndToEndTimings:
        """Every other round takes three times as long for whatever is mixed."""
        return stretched(track.run(again), {plan.name: (1.0, 3.0) for plan in again if not plan.single})

    class Lucky(Track):
        def latency_us(self, plan: Plan) -> float:
            return super().latency_us(plan) * (0.5 if plan.name.startswith("move") else 1.0)

    found, _ = second_level(track, judge=Lucky(change_us=5.0), afresh=storm)

    assert decide(storm(plans).timed, 0).winner not in mixed  # the storm alone would have it thrown away
    assert found.trace["afresh"] is not None
    assert decide(found.timings.timed, 0).winner == kept


def test_what_beats_its_start_but_not_the_best_toolchain_alone_is_not_taken() -> None:
    track = Track(change_us=14.0)

    def start_stumbles(again: Sequence[Plan]) -> EndToEndTimings:
        """All that is not one toolchain takes twice as long, the start even three times."""
        slow = {plan.name: (3.0,) for plan in again if not plan.single} | {NAME: (2.0,)}
        return stretched(track.run(again), slow)

    _, _, plans, _ = first_level()
    kept = decide(track.run(plans).timed, 0).winner
    start = next(plan for plan in plans if plan.name == kept)
    found, _ = second_level(track, afresh=start_stumbles)

    assert not start.single
    assert "would not be kept among all plans" in found.note
    assert decide(found.timings.timed, 0).winner == kept


def test_it_starts_from_every_plan_that_ran_the_best_first() -> None:
    track = Track(fails=lambda plan: plan.name == "a")

    found, plans = second_level(track)

    starts = [each for each in found.trace["evaluations"] if each["move"] == "start"]
    assert len(starts) == len(plans) - 1
    assert starts[0]["ratio"] == 1.0
    assert min(each["ratio"] for each in starts) == 1.0


def test_nothing_to_start_from_is_no_error() -> None:
    pool, _, plans, proposals = first_level()
    nothing = EndToEndTimings(timed=(), failed={plan.name: "it fails" for plan in plans})

    found = improved(
        pool,
        plans,
        nothing,
        proposals,
        judge=Track().run,
        race=Track().run,
        measure=lambda candidate: None,
        limits=TwoLevelLimits(),
        stop=lambda: False,
    )

    assert found.timings is nothing
    assert "no plan to start from" in found.note


def test_a_kernel_that_fails_alone_is_not_kept() -> None:
    def is_new(candidate: CandidateKernel) -> bool:
        return 1 < len(candidate.sub_graph.names) < len(OPERATORS)

    found, _ = second_level(Track(change_us=14.0), refuses=is_new)

    new = [k.sub_graph.names for plan in found.plans for k in plan.kernels if is_new(k)]
    assert new == []


def test_a_second_run_takes_the_same_steps() -> None:
    first, again = Track(change_us=14.0), Track(change_us=14.0)

    traces = [json.dumps(second_level(each)[0].trace) for each in (first, again)]

    assert traces[0] == traces[1]
    assert first.races == again.races


def test_a_target_for_whole_models_is_a_start_and_is_not_taken_apart() -> None:
    spin: Target = a_target("spin", mixable=False)
    pool, source, plans, proposals = first_level()
    whole = kernel(pool.graph, spin)
    pool = pool.with_candidates([whole])
    source.known[pool.cache_key(whole)] = [1.0]
    [extra] = singles(pool, [spin])
    everything = [*plans, extra]

    class Fast(Track):
        def latency_us(self, plan: Plan) -> float:
            return 1.0 if any(k.target == spin for k in plan.kernels) else super().latency_us(plan)

    track = Fast()
    found = improved(
        pool,
        everything,
        track.run(everything),
        {**proposals, "spin": propose(rule_of(spin), pool.graph, CandidateBounds(), cuts=())},
        judge=track.run,
        race=track.run,
        measure=lambda candidate: None,
        limits=TwoLevelLimits(evaluations=10),
        stop=lambda: False,
    )

    assert found.trace["evaluations"][0]["kernels"] == [{"target": "spin", "nodes": list(pool.graph.names)}]
    assert not any(
        "spin" in {k["target"] for k in each["kernels"]} and len(each["kernels"]) > 1
        for each in found.trace["evaluations"]
    )
    assert "no gain" in found.note
