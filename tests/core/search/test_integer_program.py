"""The integer program against brute force, and the exact search against the integer program where there is no other."""

from __future__ import annotations

import functools
import importlib.util
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import pytest

from collage_core.candidates.costs import Costs
from collage_core.candidates.pool import CandidatePool, PoolCosts
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Joins, Target, Unmeasured
from collage_core.contract.cost import INVALID, UNMEASURED
from collage_core.errors import NoCoverError, SolverMissingError
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.work import estimated_work_us, work_kinds
from collage_core.registry import Toolchain
from collage_core.search import CostTable, SearchCandidate, SearchProblem, SearchTarget, search, solve
from collage_testing import MockToolchain

LIGHT = Path(onnx.__file__).resolve().parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
def test_it_finds_the_optimum_of_random_problems(
    style: str, draw: Callable[..., Any], best_plan: Callable[..., Any], ranked: Callable[..., Any]
) -> None:
    for seed in range(30):
        instance = draw(random.Random(seed), style)
        wanted = best_plan(instance)
        if wanted is None:
            with pytest.raises(NoCoverError):
                solve(instance.problem, instance.costs)
            continue
        optimum_us = ranked(instance, wanted)[0] / 1e6
        found = solve(instance.problem, instance.costs)
        assert found.total_us == pytest.approx(optimum_us, abs=1e-6), (style, seed)
        assert found.bound_us <= optimum_us + 1e-6
        assert found.proves(optimum_us)
        assert not found.proves(optimum_us * 1.01 + 0.01)


def test_circles_are_cut_off(design_instance: Any) -> None:
    found = solve(design_instance.problem, design_instance.costs)

    assert found.total_us == pytest.approx(5.0)
    assert found.cuts > 0


def mock_cost(candidate: CandidateKernel) -> float:
    """A cost that depends on everything, has ties, and makes joining and either target pay here and there."""
    graph = candidate.sub_graph.graph
    total = 3.0
    kinds, work = node_facts(graph)
    for name in candidate.sub_graph.names:
        index = graph.index_of(name)
        luck = zlib.crc32(f"{candidate.target.name} {kinds[index]} {index // 7}".encode()) % 7
        total += round(work[index]) % 500 * (0.5 + luck / 6)
    return round(total, 1)


@functools.cache
def node_facts(graph: DataflowGraph) -> tuple[tuple[str, ...], tuple[float, ...]]:
    return work_kinds(graph), estimated_work_us(graph)


class MockCosts:
    def key(self, sub_graph: SubGraph) -> str:
        return hex(sub_graph.nodes)

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> float | Unmeasured:
        roll = zlib.crc32(f"{candidate.sub_graph.nodes} {candidate.target.name}".encode()) % 40
        if candidate.sub_graph.nodes.bit_count() > 1 and roll < 2:
            return INVALID if roll else UNMEASURED
        return mock_cost(candidate)

    def rejection(self, candidate: CandidateKernel) -> None:
        return None


@pytest.mark.parametrize(
    ("name", "joins", "depth"),
    [
        ("squeezenet", Joins.ANY, 6),
        ("resnet50", Joins.NATIVE, 4),
        ("shufflenet", Joins.ANY, 4),
        ("inception_v1", Joins.NATIVE, 3),
    ],
)
def test_on_real_graphs_the_exact_search_and_the_integer_program_agree(name: str, joins: Joins, depth: int) -> None:
    proto = onnx.load(LIGHT / f"light_{name}.onnx")
    graph = DataflowGraph(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True)))
    targets = [Target(toolchain=each, fingerprint="1", joins=joins) for each in "ab"]
    pool = CandidatePool(graph, Costs(MockCosts()), dispatch_us=0.5)
    for target in targets:
        mock = MockToolchain(target.toolchain, costs_us={}, operators=["*"], targets=[target])
        rule = target_rule(Toolchain(target.toolchain, mock), target, {})
        bounds = CandidateBounds(max_depth=depth, max_candidates=1500)
        pool = pool.with_candidates(propose(rule, graph, bounds, cuts=None).candidates)
    engine = pool.engine()

    plan = engine.run()
    found = solve(pool.problem(), PoolCosts(pool))

    assert len({c.target for c in plan.candidates}) == 2
    assert plan.total_us == pytest.approx(found.total_us, rel=1e-9)
    assert found.proves(plan.total_us)


def test_targets_that_exclude_each_other_never_meet() -> None:
    targets = [
        SearchTarget(name="a", toolchain="a", excludes=frozenset({"b"})),
        SearchTarget(name="b", toolchain="b"),
    ]
    candidates = [SearchCandidate(nodes=1 << n, target=t.name, key=f"{n}") for n in range(2) for t in targets]
    problem = SearchProblem.from_predecessors([[], [0]], targets=targets, candidates=candidates)
    costs = CostTable({("a", "0"): 1.0, ("b", "0"): 9.0, ("a", "1"): 9.0, ("b", "1"): 2.0})

    assert solve(problem, costs).total_us == pytest.approx(10.0)


def test_a_node_that_nothing_covers_is_named() -> None:
    target = SearchTarget(name="a", toolchain="a")
    problem = SearchProblem.from_predecessors(
        [[], [0]], targets=[target], candidates=[SearchCandidate(nodes=1, target="a", key="k")]
    )

    with pytest.raises(NoCoverError) as caught:
        solve(problem, CostTable({("a", "k"): 1.0}))

    assert caught.value.nodes == (1,)


def test_where_nothing_needs_a_kernel_nothing_is_chosen() -> None:
    problem = SearchProblem.from_predecessors([[]], targets=[], candidates=[], host=1)

    assert solve(problem, CostTable({})).candidates == ()


def test_without_the_solver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(SolverMissingError, match=r"pip install 'collage-core\[ilp\]'"):
        solve(SearchProblem.from_predecessors([[]], targets=[], candidates=[], host=1), CostTable({}))


def test_candidates_come_in_an_order_in_which_they_can_run() -> None:
    target = SearchTarget(name="a", toolchain="a")
    candidates = [
        SearchCandidate(nodes=0b1001, target="a", key="x"),
        SearchCandidate(nodes=0b0110, target="a", key="y"),
    ]
    problem = SearchProblem.from_predecessors([[], [], [], [1]], targets=[target], candidates=candidates)

    found = solve(problem, CostTable({("a", "x"): 1.0, ("a", "y"): 1.0}))

    assert [c.nodes for c in found.candidates] == [0b0110, 0b1001]
    assert search(problem, CostTable({("a", "x"): 1.0, ("a", "y"): 1.0})).total_us == pytest.approx(found.total_us)
