"""Learn what each toolchain is good at from what is measured, to estimate what is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from collage.explore.exploration import Exploration
from collage.explore.measuring import is_operator, measured
from collage.explore.profiling import NodeTimes, node_times
from collage.explore.proposing import weights_from_work
from collage_core.candidates.boundary import boundary_bytes
from collage_core.candidates.costs import CacheKey
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.graph.work import estimated_work_us, work_kinds
from collage_core.search import GUESSED, PROFILED, Beliefs, TargetBelief

_EXPLAINED = 0.8
"""Share of the work whose kinds must have been seen on a target without a profile before it counts as known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knowledge:
    """An exploration, and what was learnt in it.

    Attributes:
        exploration: What is measured.
        work: Estimated microseconds of each node.
        kinds: Kind of work of each node.
        beliefs: What the rest may cost.
        profiled: Names of targets whose beliefs come from a profile of their own.
        learnt: What the beliefs were learnt from: microseconds by target, and key and nodes of a kernel.
        wanted: Target and nodes of what is worth asking for.
    """

    exploration: Exploration
    work: Sequence[float]
    kinds: Sequence[str]
    beliefs: Beliefs
    profiled: frozenset[str] = frozenset()
    learnt: Mapping[tuple[str, CacheKey, int], float] = dataclasses.field(default_factory=dict)
    wanted: frozenset[tuple[str, int]] = frozenset()

    def after(self, exploration: Exploration) -> Knowledge:
        """Return the same after a step from which nothing was learnt."""
        return dataclasses.replace(self, exploration=exploration)

    def wanting(self, candidates: Iterable[tuple[str, int]]) -> Knowledge:
        """Return the same with more that is worth asking for."""
        return dataclasses.replace(self, wanted=self.wanted.union(candidates))

    def weights(self) -> list[float]:
        """Return how far apart targets are believed to be on each node, in microseconds."""
        weights = weights_from_work(self.exploration)
        names = [
            name
            for name, each in self.exploration.proposed.by_target.items()
            if each.rule.target.mixable and (name in self.profiled or self._is_seen(name))
        ]
        for index in iterate_bits(self.exploration.graph.needs_kernel) if len(names) > 1 else ():
            believed = [self.beliefs.node_us(name, index) for name in names]
            weights[index] = max(believed) - min(believed)
        return weights

    def _is_seen(self, name: str) -> bool:
        return any(target == name for target, *_ in self.learnt)


def knowing_nothing(exploration: Exploration) -> Knowledge:
    """Return an exploration from which nothing was learnt yet."""
    graph = exploration.graph
    work, kinds = estimated_work_us(graph), work_kinds(graph)
    belief = TargetBelief(work, kinds, [GUESSED] * len(work))
    beliefs = Beliefs(
        {rule.target.name: belief for rule in exploration.setup.rules}, boundary_bytes(exploration.pool.values)
    )
    return Knowledge(exploration=exploration, work=work, kinds=kinds, beliefs=beliefs)


def looked_at(knowledge: Knowledge, what: str, candidates: Iterable[CandidateKernel]) -> Knowledge:
    """Measure candidates and learn from what comes out.

    Args:
        knowledge: What is known so far.
        what: Name of the phase, for the progress display.
        candidates: What to measure, in this order.
    """
    looked = list(candidates)
    exploration = measured(knowledge.exploration, what, looked)
    fresh: dict[tuple[str, CacheKey, int], float] = {}
    for candidate in looked:
        cost = exploration.pool.selected_us(candidate)
        # what was measured for two targets teaches of both
        key = candidate.target.name, exploration.pool.cache_key(candidate), candidate.sub_graph.nodes
        if cost is not None and key not in knowledge.learnt:
            fresh[key] = cost
    beliefs = knowledge.beliefs.learning((name, nodes, cost) for (name, _, nodes), cost in fresh.items())
    return dataclasses.replace(
        knowledge, exploration=exploration, beliefs=beliefs, learnt={**knowledge.learnt, **fresh}
    )


def with_profiles(knowledge: Knowledge, candidates: Iterable[CandidateKernel]) -> Knowledge:
    """Start the beliefs anew from the toolchains' own profiles of kernels that were measured.

    A target without a profile is believed to take what the fastest profiled target does.

    Args:
        knowledge: What is known so far.
        candidates: Measured kernels of several operators.
    """
    exploration = knowledge.exploration
    profiles: dict[str, NodeTimes] = {}
    for candidate in candidates:
        cost = exploration.pool.selected_us(candidate)
        if cost is None or not candidate.target.mixable or is_operator(exploration, candidate):
            continue
        if times := node_times(exploration, candidate, cost, knowledge.work):
            profiles.setdefault(candidate.target.name, {}).update(times)
    if not profiles:
        return knowledge
    filled = {name: _filled(times, knowledge.work, knowledge.kinds) for name, times in profiles.items()}
    fastest = [min(times) for times in zip(*filled.values(), strict=True)]
    targets = {}
    for rule in exploration.setup.rules:
        name = rule.target.name
        doubts = [PROFILED if node in profiles.get(name, ()) else GUESSED for node in range(len(knowledge.work))]
        targets[name] = TargetBelief(filled.get(name, fastest), knowledge.kinds, doubts)
    beliefs = Beliefs(targets, boundary_bytes(exploration.pool.values))
    beliefs = beliefs.learning((name, nodes, cost) for (name, _, nodes), cost in knowledge.learnt.items())
    return dataclasses.replace(knowledge, beliefs=beliefs, profiled=frozenset(profiles))


def probed(knowledge: Knowledge) -> Knowledge:
    """Measure the largest operator of each kind on each target that has no profile, those with most work first."""
    largest = _largest(knowledge)
    work: dict[str, float] = {}
    for kind, each in zip(knowledge.kinds, knowledge.work, strict=True):
        work[kind] = work.get(kind, 0.0) + each
    most, seen = knowledge.exploration.setup.preset.operators, 0.0
    for kind in sorted(largest, key=lambda name: (-work[name], name))[:most]:
        if seen >= _EXPLAINED * sum(work.values()):
            break
        seen += work[kind]
        knowledge = looked_at(knowledge, f"measuring {kind}", [largest[kind][name] for name in sorted(largest[kind])])
    return knowledge


def _largest(knowledge: Knowledge) -> dict[str, dict[str, CandidateKernel]]:
    """Return the operator with most work of each kind and target without a profile."""
    found: dict[str, dict[str, tuple[float, CandidateKernel]]] = {}
    for candidate in knowledge.exploration.pool:
        name, nodes = candidate.target.name, list(iterate_bits(candidate.sub_graph.nodes))
        if name in knowledge.profiled or not candidate.target.mixable:
            continue
        if not is_operator(knowledge.exploration, candidate):
            continue
        heaviest = max(nodes, key=lambda node: (knowledge.work[node], node))
        kind, size = knowledge.kinds[heaviest], sum(knowledge.work[node] for node in nodes)
        known = found.setdefault(kind, {}).get(name)
        if size and (known is None or size > known[0]):
            found[kind][name] = size, candidate
    return {kind: {name: candidate for name, (_, candidate) in each.items()} for kind, each in found.items()}


def _filled(times: NodeTimes, work: Sequence[float], kinds: Sequence[str]) -> list[float]:
    """Return the time of every node: of those without one, from others of its kind, or from all."""
    by_kind: dict[str, tuple[float, float]] = {}
    for node, time in times.items():
        known = by_kind.get(kinds[node], (0.0, 0.0))
        by_kind[kinds[node]] = known[0] + time, known[1] + work[node]
    total, done = (sum(column) for column in zip(*by_kind.values(), strict=True))
    usual = total / done if done else 1.0
    return [
        times[node] if node in times else each * _ratio(by_kind.get(kinds[node]), usual)
        for node, each in enumerate(work)
    ]


def _ratio(known: tuple[float, float] | None, usual: float) -> float:
    return known[0] / known[1] if known is not None and known[1] else usual
