"""How far measurements are trusted, and what profiles disagree about."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from collage.explore.exhaustive import begun
from collage.explore.learning import Knowledge, knowing_nothing, looked_at, with_profiles
from collage.explore.measuring import measured
from collage.explore.proposing import worth_measuring
from collage.explore.searching import searched
from collage.options import PRESETS
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import NOISE, SearchResult
from collage_testing import chain
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, rule_of, setup_of

OPERATORS = ("Relu", "Neg", "Exp", "Tanh", "Abs", "Sin", "Cos", "Floor", "Ceil", "Sign", "Sqrt", "Erf") * 4
GRAPH = DataflowGraph(chain(*OPERATORS, shape=(4, 4)))


class Blocks(FakeSource):
    """Each measurement has blocks that differ."""

    def __init__(self, blocks: Callable[[], tuple[float, ...]]) -> None:
        super().__init__(by_operator({"a": dict.fromkeys(OPERATORS, 10.0)}))
        self._blocks = blocks

    def medians_us(self, candidate: CandidateKernel, *, confirmed: bool = True) -> tuple[float, ...]:
        return self._blocks()


def noise_of(source: FakeSource) -> float:
    exploration = begun(setup_of(source, [rule_of(a_target("a"))]), empty_pool(GRAPH, source))
    return looked_at(knowing_nothing(exploration), "looking", exploration.pool).noise


@pytest.mark.parametrize("count", [2, 5])
def test_the_noise_of_measurements_is_what_their_blocks_usually_differ_by(count: int) -> None:
    rng = random.Random(1)

    assert noise_of(Blocks(lambda: tuple(rng.gauss(50, 5) for _ in range(count)))) == pytest.approx(0.1, rel=0.3)


def test_a_few_disturbed_measurements_say_nothing_of_the_others() -> None:
    rng = random.Random(1)

    def blocks() -> tuple[float, ...]:
        return tuple(rng.gauss(50, 5) * (4 if rng.random() < 0.1 else 1) for _ in range(2))

    assert noise_of(Blocks(blocks)) < 0.2


def test_where_blocks_agree_or_there_are_none_it_is_what_is_always_assumed() -> None:
    assert noise_of(Blocks(lambda: (50.0, 50.0))) == NOISE
    assert noise_of(Blocks(lambda: (50.0,))) == NOISE
    assert noise_of(Blocks(lambda: ())) == NOISE


LINE = ("Relu", "Neg", "Exp", "Tanh", "Abs", "Sin")


def alone(refused: str, slow: str) -> list[tuple[str, str]]:
    """Measure largest kernels of two targets with profiles; return which operators are measured alone after that."""
    graph = DataflowGraph(chain(*LINE, shape=(64, 64)))
    costs_us = {"a": {**dict.fromkeys(LINE, 10.0), slow: 90.0}, "b": dict.fromkeys(LINE, 10.0)}
    source = FakeSource(by_operator(costs_us), profile_us=lambda name, node: costs_us[name][node.op_type])
    rules = [rule_of(a_target("a"), refuses=[refused] if refused else []), rule_of(a_target("b"))]
    knowledge = knowing_nothing(begun(setup_of(source, rules), empty_pool(graph, source)))
    largest = worth_measuring(knowledge.exploration, operators=0)
    knowledge = looked_at(knowledge, "looking", largest)
    before = len(source.measured)

    with_profiles(knowledge, largest)

    return [(name, nodes[0]) for name, nodes in source.measured[before:] if len(nodes) == 1]


def test_patience_begins_anew_with_each_best_plan_and_lasts_for_what_a_plan_lacks() -> None:
    source = FakeSource(by_operator({"a": {name: 10.0 + place for place, name in enumerate(OPERATORS)}}))
    preset = dataclasses.replace(PRESETS["default"], patience=3)
    exploration = begun(setup_of(source, [rule_of(a_target("a"))], preset=preset), empty_pool(GRAPH, source))
    kernels = list({exploration.pool.cache_key(each): each for each in exploration.pool}.values())
    knowledge = knowing_nothing(exploration)
    assert not knowledge.waiting(0).is_in_vain  # nothing was found that could stay the same

    def found(knowledge: Knowledge, best_us: float) -> Knowledge:
        result = SearchResult(
            candidates=(),
            costs_us=(),
            total_us=best_us,
            exact=True,
            gap_us=0.0,
            states=1,
            method="exact",
            unmeasured=0,
        )
        return knowledge.after(knowledge.exploration.told(result))

    def more(knowledge: Knowledge, count: int) -> Knowledge:
        known = len(knowledge.learnt)
        return looked_at(knowledge, "looking", kernels[known : known + count])

    knowledge = found(more(knowledge, 1), 9.0).waiting(5)
    knowledge = more(knowledge, 4).waiting(0)
    assert not knowledge.is_in_vain
    assert more(knowledge, 1).is_in_vain

    knowledge = found(knowledge, 8.0).waiting(0)
    assert not more(knowledge, 2).is_in_vain
    assert more(knowledge, 3).is_in_vain


def test_patience_lasts_longer_the_more_targets_mix() -> None:
    preset = dataclasses.replace(PRESETS["default"], patience=3)
    one, two, unmixed = a_target("a"), a_target("b"), dataclasses.replace(a_target("c"), mixable=False)
    lasts = []
    for targets in ([one], [one, two], [one, two, unmixed]):
        source = FakeSource(by_operator({target.name: dict.fromkeys(OPERATORS, 10.0) for target in targets}))
        setup = setup_of(source, [rule_of(target) for target in targets], preset=preset)
        exploration = begun(setup, empty_pool(GRAPH, source))
        found, _ = searched(measured(exploration, "measuring", exploration.pool))
        knowledge = knowing_nothing(found).waiting(0)
        assert knowledge.patience is not None
        lasts.append(knowledge.patience.until)

    assert lasts == [3, 6, 6]


def test_an_operator_that_one_profile_lacks_is_not_disputed() -> None:
    assert alone(refused="", slow="Tanh") == [("a", "tanh_0"), ("b", "tanh_0")]
    assert alone(refused="Tanh", slow="Tanh") == []
    assert alone(refused="Tanh", slow="Exp") == [("a", "exp_0"), ("b", "exp_0")]
