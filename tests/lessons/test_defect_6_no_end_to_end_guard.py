"""Kernels were measured alone and boundaries not counted, and nobody ran the whole plan against one toolchain alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from collage.decide.decision import decide
from collage.decide.shortlist import mixes, singles
from collage.decide.timed import Timed
from collage_core.candidates.plan import Plan
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

# Each is good at one operator; alone, as kernels are timed, the mix of both is the cheapest by far.
COSTS_US = {"a": {"Relu": 20.0, "Exp": 80.0}, "b": {"Relu": 80.0, "Exp": 20.0}}
GRAPH = DataflowGraph(chain("Relu", "Exp"))
A, B = a_target("a"), a_target("b")


def plans() -> dict[str, Plan]:
    """What would be timed end to end."""
    candidates = [kernel(GRAPH, target, *nodes) for target in (A, B) for nodes in ((), ("relu_0",), ("exp_0",))]
    pool = pool_of(GRAPH, by_operator(COSTS_US), *candidates).pool
    return {plan.name: plan for plan in (*singles(pool, [A, B]), *mixes(pool, 1))}


def timed(plan: Plan, boundary_us: float, seed: int) -> Timed:
    """A plan as it runs: a boundary between toolchains costs what no kernel shows alone, cold caches for one."""
    used = [each.target.name for each in plan.kernels]
    changes = sum(one != other for one, other in itertools.pairwise(used))
    latency_us = plan.predicted_us + boundary_us * changes
    noise = np.random.default_rng(seed).normal(1.0, 0.01, (12, 9))
    return Timed(
        name=plan.name,
        single=plan.single,
        kernels=len(plan.kernels),
        toolchains=len(set(used)),
        rounds_us=tuple(tuple(row) for row in (latency_us * noise).tolist()),
    )


def kept(boundary_us: float) -> str:
    """What is kept when boundaries cost so much."""
    found: Mapping[str, Plan] = plans()
    return decide([timed(plan, boundary_us, seed) for seed, plan in enumerate(found.values())], seed=0).winner


def test_a_mix_that_loses_end_to_end_is_not_kept() -> None:
    old = min(plans().values(), key=lambda plan: plan.predicted_us)

    assert (old.name, old.single) == ("mixed-1", False), "by the sum of its kernels, as v1 chose, the mix wins"
    assert kept(boundary_us=70.0) in ("a", "b")


def test_a_mix_that_wins_end_to_end_is() -> None:
    assert kept(boundary_us=10.0) == "mixed-1"
