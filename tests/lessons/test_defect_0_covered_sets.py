"""Defect 0: a set of covered nodes taken for all there is to know of a partial plan.

The old search was a shortest path over covered-node masks. The instance is that of
`docs/design/0004-acyclic-as-a-whole.md`: two partial plans cover the same nodes, and only one can be completed without
a cycle.
"""

from __future__ import annotations

from collage_core.search import CostTable, SearchCandidate, SearchProblem, SearchTarget, search

EDGES = [(0, 4), (2, 3)]
CANDIDATES = [((0, 3), 1.0), ((1,), 1.0), ((0,), 2.0), ((1, 3), 2.0), ((2, 4), 1.0), ((2,), 10.0), ((4,), 10.0)]


def runs(plan: list[tuple[int, ...]]) -> bool:
    """Whether kernels can run one after the other."""
    left = list(plan)
    done: set[int] = set()
    while left:
        ready = [k for k in left if all(a in done or a in k for a, b in EDGES if b in k)]
        if not ready:
            return False
        done.update(*ready)
        left = [k for k in left if k not in ready]
    return True


def old_search() -> float:
    """The cheapest way to each covered set, as it was: what else the way did is forgotten."""
    best: dict[frozenset[int], tuple[float, list[tuple[int, ...]]]] = {frozenset(): (0.0, [])}
    everything = frozenset(range(5))
    for low in range(5):
        for covered, (cost, plan) in list(best.items()):
            if min(everything - covered, default=5) != low:
                continue
            for nodes, price in CANDIDATES:
                if low in nodes and not covered & set(nodes) and runs([*plan, nodes, *rest(covered | set(nodes))]):
                    after = covered | set(nodes)
                    if after not in best or cost + price < best[after][0]:
                        best[after] = cost + price, [*plan, nodes]
    return best[everything][0]


def rest(covered: frozenset[int]) -> list[tuple[int, ...]]:
    return [(node,) for node in range(5) if node not in covered]


def test_the_old_state_finds_22_and_the_search_finds_the_optimum() -> None:
    target = SearchTarget(name="a", toolchain="a")
    problem = SearchProblem.from_predecessors(
        [[a for a, b in EDGES if b == node] for node in range(5)],
        targets=[target],
        candidates=[
            SearchCandidate(nodes=sum(1 << n for n in nodes), target="a", key=str(nodes)) for nodes, _ in CANDIDATES
        ],
    )
    result = search(problem, CostTable({("a", str(nodes)): cost for nodes, cost in CANDIDATES}))

    assert old_search() == 22.0
    assert (result.total_us, result.exact) == (5.0, True)
    assert {c.key for c in result.candidates} == {"(0,)", "(1, 3)", "(2, 4)"}
