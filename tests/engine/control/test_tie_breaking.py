from __future__ import annotations

from typing import Any

import pytest

from collage.control.tie_breaking import TieBreaking, break_ties
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.errors import UsageError
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import a_target, empty_pool, kernel

A, B, WIDE = a_target("a"), a_target("b"), a_target("a", options=(("wide", "true"),))


class Noisy:
    """Knows samples of candidates by target and nodes."""

    def __init__(self, samples: dict[tuple[str, tuple[str, ...]], tuple[float, ...]]) -> None:
        self._samples = samples

    def key(self, sub_graph: Any) -> str:
        return str(sub_graph.nodes)

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> float:
        found = sorted(self.medians_us(candidate))
        return found[len(found) // 2]

    def medians_us(self, candidate: CandidateKernel, *, confirmed: bool = True) -> tuple[float, ...]:
        return self._samples[candidate.target.name, candidate.sub_graph.names]

    def rejection(self, candidate: CandidateKernel) -> None:
        return None


def settled(a_us: tuple[float, ...], b_us: tuple[float, ...], prefer: str) -> tuple[list[str], tuple[str, ...]]:
    """Who runs `relu_0` and `exp_0`, and what is said, if a is chosen for both; `exp_0` is a's beyond doubt."""
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("Exp", g.op("Relu", g.input("x", 4)))))
    source = Noisy(
        {
            ("a", ("relu_0",)): a_us,
            ("b", ("relu_0",)): b_us,
            ("a", ("exp_0",)): (5.0,) * 9,
            ("b", ("exp_0",)): (9.0,) * 9,
        }
    )
    candidates = {(t.name, n): kernel(graph, t, n) for t in (A, B) for n in ("relu_0", "exp_0")}
    pool = empty_pool(graph, source, 0.0).with_candidates(candidates.values())
    chosen = (candidates["a", "relu_0"], candidates["a", "exp_0"])
    costs = tuple(source.cost(each) for each in chosen)
    plan = Plan(name="p", single=False, partitioning=Partitioning(graph, chosen), costs_us=costs, dispatch_us=0.0)
    found, said = break_ties(plan, pool, source, TieBreaking.parse(prefer))
    assert sum(found.costs_us) == sum(source.cost(each) for each in found.partitioning.kernels)
    return [each.target.name for each in found.kernels], said


NOISY = (10.0, 14.0, 8.0, 12.0, 9.0, 11.0, 10.0, 13.0, 10.0)
STEADY = (10.0, 10.01, 10.02, 10.0, 10.01, 10.02, 10.0, 10.01, 10.02)


def test_what_cannot_be_told_apart_goes_to_the_preferred_target_and_it_is_said() -> None:
    who, said = settled(NOISY, tuple(sample + 0.3 for sample in NOISY), "b,a")

    assert who == ["b", "a"]
    [sentence] = said
    assert sentence.startswith("relu_0: a (10.0 us) and b (10.3 us) cannot be told apart")
    assert sentence.endswith("so --prefer decided for b")


@pytest.mark.parametrize(
    ("a_us", "b_us", "prefer"),
    [
        (NOISY, tuple(sample + 0.3 for sample in NOISY), "a,b"),  # the choice is preferred already
        (NOISY, tuple(sample + 0.3 for sample in NOISY), ""),
        (STEADY, tuple(sample + 0.3 for sample in STEADY), "b,a"),  # 3 % slower, beyond doubt
        (NOISY, tuple(sample + 2 for sample in NOISY), "b,a"),  # 20 % slower, in doubt
    ],
)
def test_otherwise_the_cheaper_one_stays(a_us: tuple[float, ...], b_us: tuple[float, ...], prefer: str) -> None:
    assert settled(a_us, b_us, prefer) == (["a", "a"], ())


def test_targets_nobody_named_come_last_and_a_toolchain_stands_for_all_its_targets() -> None:
    tie_breaking = TieBreaking.parse("a(wide=true),b")

    assert tie_breaking.rank([WIDE.name]) < tie_breaking.rank([B.name]) < tie_breaking.rank([A.name])
    assert TieBreaking.parse("a").rank([WIDE.name]) == TieBreaking.parse("a").rank([A.name])
    assert (
        tie_breaking.rank([WIDE.name]) < tie_breaking.rank([WIDE.name, B.name]) < tie_breaking.rank([WIDE.name, A.name])
    )
    # who is not named counts once, and none is worse than one beside who is
    assert TieBreaking.parse("b").rank(["x"]) == TieBreaking.parse("b").rank(["x", "y"])
    assert TieBreaking.parse("b").rank([B.name, "x"]) < TieBreaking.parse("b").rank(["x", "y"])
    assert TieBreaking.parse("b").rank([B.name]) < TieBreaking.parse("b").rank([B.name, "x"])
    assert not TieBreaking.parse(None)


def test_a_preference_for_nobody_who_takes_part_is_refused() -> None:
    TieBreaking.parse("a").check([WIDE, B])
    with pytest.raises(UsageError, match="--prefer: no target 'c' takes part; those that do: a, b"):
        TieBreaking.parse("c").check([A, B])
    with pytest.raises(UsageError, match="--prefer: 'a\\(' is not a target"):
        TieBreaking.parse("a(")


def test_nobody_gets_a_kernel_of_a_plan_with_whom_it_cannot_share_one() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("Exp", g.op("Relu", g.input("x", 4)))))
    rival = a_target("b", excludes=frozenset({"c"}))
    other = a_target("c")
    source = Noisy(
        {
            **{("a", (name,)): NOISY for name in graph.names},
            ("b", ("relu_0",)): NOISY,
            ("c", ("exp_0",)): NOISY,
        }
    )
    kernels = [kernel(graph, A, *graph.names[:1]), kernel(graph, rival, "relu_0"), kernel(graph, other, "exp_0")]
    pool = empty_pool(graph, source, 0.0).with_candidates(kernels)

    def after(pool: CandidatePool, chosen: list[CandidateKernel], prefer: str) -> list[str]:
        costs = tuple(source.cost(each) for each in chosen)
        partitioning = Partitioning(graph, tuple(chosen))
        plan = Plan(name="p", single=False, partitioning=partitioning, costs_us=costs, dispatch_us=0.0)
        return [each.target.name for each in break_ties(plan, pool, source, TieBreaking.parse(prefer))[0].kernels]

    assert after(pool, [kernels[0], kernel(graph, A, "exp_0")], "b,a") == ["b", "a"]
    assert after(pool, [kernels[0], kernels[2]], "b,a") == ["a", "c"]
    pool = pool.with_candidates([kernel(graph, A, "exp_0")])
    # both would like to: whoever comes first does
    assert after(pool, [kernels[0], kernel(graph, A, "exp_0")], "b,c,a") == ["b", "a"]
