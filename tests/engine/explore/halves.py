"""Two targets, each of which computes one half of a chain of operators fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from collage.explore.exploration import ExplorationSetup, Explored
from collage.explore.lazy import explore_lazily
from collage.measure.budget import UNLIMITED, Budget
from collage.options import Preset
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, rule_of, setup_of

A, B = a_target("a"), a_target("b")
OPERATORS = ("Relu", "Neg", "Exp", "Tanh", "Abs", "Sin", "Cos", "Floor", "Ceil", "Sign", "Sqrt", "Erf")
GRAPH = DataflowGraph(chain(*OPERATORS, shape=(64, 64)))
FIRST, SECOND = OPERATORS[:6], OPERATORS[6:]
HALVES = by_operator(
    {
        "a": {**dict.fromkeys(FIRST, 10.0), **dict.fromkeys(SECOND, 90.0)},
        "b": {**dict.fromkeys(FIRST, 90.0), **dict.fromkeys(SECOND, 10.0)},
    },
    launch_us=5.0,
)

Explore = Callable[[ExplorationSetup, CandidatePool], Explored]


def explored(
    source: FakeSource,
    rules: Sequence[TargetRule] = (),
    *,
    explore: Explore = explore_lazily,
    preset: Preset | str = "default",
    budget: Budget = UNLIMITED,
    running_s: float = math.inf,
) -> Explored:
    setup = setup_of(source, rules or [rule_of(A), rule_of(B)], preset=preset, budget=budget, running_s=running_s)
    return explore(setup, empty_pool(GRAPH, source))


def path(found: Explored) -> list[tuple[str, tuple[str, ...]]]:
    return [(chosen.target, found.pool.candidate(chosen).sub_graph.names) for chosen in found.result.candidates]
