"""How far measurements are trusted."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from collage.explore.exhaustive import begun
from collage.explore.learning import knowing_nothing, looked_at
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import NOISE
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
