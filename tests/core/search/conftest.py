"""Random search problems, and an oracle that shares nothing with the search but the problem's definition."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import pytest

from collage_core.contract.cost import INVALID
from collage_core.search import CostTable, SearchCandidate, SearchProblem, SearchTarget

Plan = tuple[SearchCandidate, ...]


@dataclasses.dataclass(frozen=True)
class Instance:
    """A problem, the graph it came from, and its costs."""

    predecessors: tuple[tuple[int, ...], ...]
    host: int
    problem: SearchProblem
    costs_us: dict[tuple[str, str], float]

    @property
    def costs(self) -> CostTable:
        return CostTable(self.costs_us)

    @cached_property
    def targets(self) -> dict[str, SearchTarget]:
        return {target.name: target for target in self.problem.targets}

    def price_us(self, candidate: SearchCandidate) -> float:
        return self.costs_us[candidate.target, candidate.key] + self.targets[candidate.target].dispatch_us

    def with_candidates(self, candidates: Sequence[SearchCandidate]) -> Instance:
        return dataclasses.replace(self, problem=dataclasses.replace(self.problem, candidates=tuple(candidates)))


def members(mask: int) -> list[int]:
    return [node for node in range(mask.bit_length()) if mask >> node & 1]


def is_acyclic(instance: Instance, plan: Plan) -> bool:
    """Whether all kernels and all host nodes can run one after the other; over all nodes, edge by edge.

    A node that needs a kernel is computed by the kernel that holds it; a host node by the host, and once more
    inside every kernel that holds it.
    """
    home: dict[int, object] = {}
    for node in range(instance.problem.node_count):
        home[node] = ("host", node) if instance.host >> node & 1 else ("nobody", node)
    for at, candidate in enumerate(plan):
        for node in members(candidate.nodes):
            if not instance.host >> node & 1:
                home[node] = at
    waits: dict[object, set[object]] = {where: set() for where in home.values()}
    for node, sources in enumerate(instance.predecessors):
        if not isinstance(home[node], int):
            waits[home[node]] |= {home[source] for source in sources}
    for at, candidate in enumerate(plan):
        inside = members(candidate.nodes)
        waits.setdefault(at, set())
        for node in inside:
            waits[at] |= {home[s] for s in instance.predecessors[node] if s not in inside}
    while True:
        free = [where for where, needed in waits.items() if not needed]
        if not free:
            return not waits
        for where in free:
            del waits[where]
        for needed in waits.values():
            needed.difference_update(free)


def all_covers(instance: Instance) -> Iterator[Plan]:
    """Every partitioning of the nodes that need a kernel, cyclic ones and mixed-up targets included."""
    needs = [n for n in range(instance.problem.node_count) if not instance.host >> n & 1]
    usable = [
        (candidate, frozenset(members(candidate.nodes)) & frozenset(needs))
        for candidate in dict.fromkeys(instance.problem.candidates)
        if instance.costs_us.get((candidate.target, candidate.key), INVALID) != INVALID
    ]
    holding = {node: [(candidate, kernels) for candidate, kernels in usable if node in kernels] for node in needs}

    def extend(plan: Plan, covered: frozenset[int]) -> Iterator[Plan]:
        left = [node for node in needs if node not in covered]
        if not left:
            yield plan
            return
        for candidate, kernels in holding[left[0]]:
            if not kernels & covered:
                yield from extend((*plan, candidate), covered | kernels)

    yield from extend((), frozenset())


def targets_mix(instance: Instance, plan: Plan) -> bool:
    used = [instance.targets[name] for name in {c.target for c in plan}]
    if len(used) > 1 and not all(target.mixable for target in used):
        return False
    return not any(a.toolchain in b.excludes for a in used for b in used if a is not b)


def legal_plans(instance: Instance) -> list[Plan]:
    return [p for p in all_covers(instance) if targets_mix(instance, p) and is_acyclic(instance, p)]


def rank(instance: Instance, plan: Plan) -> tuple[int, int, int, list[tuple[int, str, str, str, int, str]]]:
    """Cost, kernels, toolchains, then names from the lowest node on."""
    names = [
        (c.rank, instance.targets[c.target].toolchain, c.target, c.label, c.nodes, c.key)
        for c in plan  # in the order of their lowest node, by construction
    ]
    total = sum(round(instance.price_us(c) * 1e6) for c in plan)
    return (total, len(plan), len({toolchain for _, toolchain, *_ in names}), names)


def brute_force(instance: Instance) -> Plan | None:
    """The canonical best plan, or None."""
    for plan in sorted(all_covers(instance), key=lambda plan: rank(instance, plan)):
        if targets_mix(instance, plan) and is_acyclic(instance, plan):
            return plan
    return None


def random_instance(rng: random.Random, style: str) -> Instance:
    """`uniform`: anything. `adversarial`: sparse, and most candidates join two unconnected nodes."""
    adversarial = style == "adversarial"
    count = rng.randint(4, 9) if adversarial else rng.randint(1, 9)
    density = rng.uniform(0.1, 0.35) if adversarial else rng.uniform(0.1, 0.9)
    predecessors = tuple(tuple(source for source in range(node) if rng.random() < density) for node in range(count))
    hosts = rng.choice([0.0, 0.0, 0.15, 0.4])
    host = sum(1 << node for node in range(count) if rng.random() < hosts)
    targets = [
        SearchTarget(name="a", toolchain="a", dispatch_us=rng.choice([0.0, 1.0])),
        SearchTarget(name="b", toolchain="b", dispatch_us=rng.choice([0.0, 0.5])),
    ]
    if rng.random() < 0.5:
        targets.append(SearchTarget(name="b(x=1)", toolchain="b"))
    if rng.random() < 0.25:
        targets.append(SearchTarget(name="c", toolchain="c", excludes=frozenset({rng.choice("ab")})))
    if rng.random() < 0.25:
        targets.append(SearchTarget(name="d", toolchain="d", mixable=False))
    empty = SearchProblem.from_predecessors(predecessors, targets=targets, candidates=(), host=host)
    instance = Instance(predecessors=predecessors, host=host, problem=empty, costs_us={})
    candidates: list[SearchCandidate] = []
    costs_us: dict[tuple[str, str], float] = {}
    spread = rng.choice([2, 10, 100])
    invalid, unmeasured = rng.choice([(0.0, 0.0), (0.15, 0.0), (0.0, 0.1), (0.1, 0.1)])

    def add(nodes: int, low_us: int, high_us: int) -> None:
        candidate = SearchCandidate(
            nodes=nodes,
            target=rng.choice(targets).name,
            key=f"k{len(candidates) // 2 * 2}" if rng.random() < 0.1 else f"k{len(candidates)}",
            label=rng.choice(["", "p"]),
            rank=rng.choice([0, 0, 0, 1]),
        )
        if not is_acyclic(instance, (candidate,)):
            return
        candidates.append(candidate)
        roll = rng.random()
        if roll < invalid:
            costs_us[candidate.target, candidate.key] = INVALID
        elif roll >= invalid + unmeasured:
            costs_us[candidate.target, candidate.key] = rng.randint(low_us, high_us) / 4

    for node in range(count):
        for _ in range(rng.choice([0, 1, 1, 2] if adversarial else [1, 1, 2])):
            add(1 << node, 1, spread * 3)
    for _ in range(rng.randint(count, 3 * count)):
        if adversarial:
            nodes = sum(1 << node for node in rng.sample(range(count), 2))
        else:
            nodes = sum(1 << node for node in rng.sample(range(count), rng.randint(1, count)))
        if host and rng.random() < 0.5:
            nodes |= host & rng.getrandbits(count)
        add(nodes, 1, spread if adversarial else spread * nodes.bit_count())
    rng.shuffle(candidates)
    problem = dataclasses.replace(empty, candidates=tuple(candidates))
    return Instance(predecessors=predecessors, host=host, problem=problem, costs_us=costs_us)


def entangled() -> Instance:
    """The instance of `docs/design/0004-acyclic-as-a-whole.md`: covered sets alone find 22; the optimum is 5."""
    sizes = [((0, 3), 1), ((1,), 1), ((0,), 2), ((1, 3), 2), ((2, 4), 1), ((2,), 10), ((4,), 10)]
    predecessors: tuple[tuple[int, ...], ...] = ((), (), (), (2,), (0,))
    problem = SearchProblem.from_predecessors(
        predecessors,
        targets=[SearchTarget(name="a", toolchain="a")],
        candidates=[
            SearchCandidate(nodes=sum(1 << node for node in nodes), target="a", key=str(nodes)) for nodes, _ in sizes
        ],
    )
    costs_us = {("a", str(nodes)): float(cost) for nodes, cost in sizes}
    return Instance(predecessors=predecessors, host=0, problem=problem, costs_us=costs_us)


@pytest.fixture(scope="session")
def design_instance() -> Instance:
    return entangled()


@pytest.fixture(scope="session")
def draw() -> Callable[[random.Random, str], Instance]:
    return random_instance


@pytest.fixture(scope="session")
def best_plan() -> Callable[[Instance], Plan | None]:
    return brute_force


@pytest.fixture(scope="session")
def plans_of() -> Callable[[Instance], list[Plan]]:
    return legal_plans


@pytest.fixture(scope="session")
def ranked() -> Callable[[Instance, Plan], tuple[object, ...]]:
    return rank
