from __future__ import annotations

import random

import pytest

from collage_core.errors import SearchError
from collage_core.search import SearchCandidate, SearchProblem, SearchTarget, compatible_sets
from collage_core.search.bounds import node_prices
from collage_core.search.order import execution_order
from collage_core.search.prepared import Shape

A = SearchTarget(name="a", toolchain="a")


def test_ancestors_and_descendants_follow_from_the_edges() -> None:
    problem = SearchProblem.from_predecessors([[], [0], [0], [1, 2]], targets=[], candidates=[])

    assert problem.ancestors == (0b0000, 0b0001, 0b0001, 0b0111)
    assert problem.descendants == (0b1110, 0b1000, 0b1000, 0b0000)


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (SearchCandidate(nodes=1, target="b", key="k"), "names no target"),
        (SearchCandidate(nodes=4, target="a", key="k"), "outside the graph"),
    ],
)
def test_an_ill_formed_candidate_is_refused(candidate: SearchCandidate, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchProblem.from_predecessors([[], [0]], targets=[A], candidates=[candidate])


def test_nodes_must_be_in_topological_order() -> None:
    with pytest.raises(ValueError, match="topological"):
        SearchProblem(
            node_count=2,
            needs_kernel=3,
            ancestors=(2, 0),
            descendants=(0, 1),
            targets=(),
            candidates=(),
        )


def test_a_dispatch_cost_is_a_cost() -> None:
    with pytest.raises(ValueError, match="dispatch_us"):
        SearchTarget(name="a", toolchain="a", dispatch_us=float("nan"))


def test_compatible_sets_are_all_maximal_cliques() -> None:
    rng = random.Random(3)
    for _ in range(100):
        names = "abcdef"[: rng.randint(1, 6)]
        targets = [
            SearchTarget(
                name=name,
                toolchain=name,
                mixable=rng.random() < 0.8,
                excludes=frozenset(other for other in names if rng.random() < 0.3),
            )
            for name in names
        ]
        cliques = set()
        for mask in range(1, 1 << len(names)):
            chosen = [t for at, t in enumerate(targets) if mask >> at & 1]
            if all(a is b or a.mixes_with(b) for a in chosen for b in chosen):
                cliques.add(frozenset(t.name for t in chosen))
        maximal = {clique for clique in cliques if not any(clique < other for other in cliques)}

        assert set(compatible_sets(targets)) == maximal
        assert len(compatible_sets(targets)) == len(maximal)


def test_no_candidate_is_cheaper_than_its_nodes() -> None:
    rng = random.Random(5)
    for _ in range(100):
        candidates = [(rng.randrange(1, 256), rng.randrange(100)) for _ in range(20)]
        prices = node_prices(candidates)
        for kernels, cost in candidates:
            assert sum(prices[node] for node in range(8) if kernels >> node & 1) <= cost


def shape(kernels: int, before: int) -> Shape:
    return Shape(kernels=kernels, touched=kernels, before=before, after=0, tangled=False)


def test_kernels_that_may_run_come_by_their_lowest_node() -> None:
    assert execution_order([shape(0b1001, 0b0010), shape(0b0010, 0), shape(0b0100, 0)]) == (1, 0, 2)


def test_kernels_in_a_circle_have_no_order() -> None:
    with pytest.raises(SearchError, match="2 kernels of the plan wait"):
        execution_order([shape(0b1001, 0b0010), shape(0b0110, 0b0001), shape(0b10000, 0)])
