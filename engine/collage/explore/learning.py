"""Learn what each toolchain is good at from what is measured, to estimate what is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from collage.explore.exploration import Exploration
from collage.explore.measuring import is_operator, measured
from collage.explore.proposing import weights_from_work
from collage_core.candidates.costs import CacheKey
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.work import estimated_work_us, work_kinds
from collage_core.search import FittedEstimates

_EXPLAINED = 0.8
"""Share of a target's whole-model time that known costs must explain before the target counts as known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knowledge:
    """An exploration, and what was learnt in it.

    Attributes:
        exploration: What is measured.
        work: Estimated microseconds of each node.
        kinds: Kind of work of each node.
        estimates: What the rest may cost.
        learnt: Target and key of what the estimates were learnt from.
        wanted: Target and nodes of what is worth asking for.
    """

    exploration: Exploration
    work: Sequence[float]
    kinds: Sequence[str]
    estimates: FittedEstimates
    learnt: frozenset[tuple[str, CacheKey]] = frozenset()
    wanted: frozenset[tuple[str, int]] = frozenset()

    def after(self, exploration: Exploration) -> Knowledge:
        """Return the same after a step from which nothing was learnt."""
        return dataclasses.replace(self, exploration=exploration)

    def wanting(self, candidates: Iterable[tuple[str, int]]) -> Knowledge:
        """Return the same with more that is worth asking for."""
        return dataclasses.replace(self, wanted=self.wanted.union(candidates))

    def weights(self) -> list[float]:
        """Return how far apart targets are expected to be on each node, in microseconds."""
        weights = weights_from_work(self.exploration)
        targets = sorted({c.target.name for c in self.exploration.pool if c.target.mixable})
        for index, kind in enumerate(self.kinds):
            known = [self.estimates.known_us(t, 1 << index) for t in targets if self.estimates.is_known(t, kind)]
            if len(known) > 1:
                weights[index] = max(known) - min(known)
        return weights


def knowing_nothing(exploration: Exploration) -> Knowledge:
    """Return an exploration from which nothing was learnt yet."""
    work, kinds = estimated_work_us(exploration.graph), work_kinds(exploration.graph)
    return Knowledge(exploration=exploration, work=work, kinds=kinds, estimates=FittedEstimates(work, kinds))


def looked_at(knowledge: Knowledge, what: str, candidates: Iterable[CandidateKernel]) -> Knowledge:
    """Measure candidates and learn from what comes out.

    Args:
        knowledge: What is known so far.
        what: Name of the phase, for the progress display.
        candidates: What to measure, in this order.
    """
    looked = list(candidates)
    exploration = measured(knowledge.exploration, what, looked)
    taught, learnt = [], set(knowledge.learnt)
    for candidate in looked:
        name, cost = candidate.target.name, exploration.pool.selected_us(candidate)
        key = name, exploration.pool.cache_key(candidate)  # what was measured for two targets teaches of both
        if cost is not None and key not in learnt:
            learnt.add(key)
            taught.append((name, candidate.sub_graph.nodes, cost, is_operator(exploration, candidate)))
    estimates = knowledge.estimates.learning_all(taught) if taught else knowledge.estimates
    return dataclasses.replace(knowledge, exploration=exploration, estimates=estimates, learnt=frozenset(learnt))


def probed(knowledge: Knowledge) -> Knowledge:
    """Measure the largest operator of each kind on each target, until they explain what the whole model takes."""
    largest = _largest(knowledge)
    work: dict[str, float] = {}
    for kind, each in zip(knowledge.kinds, knowledge.work, strict=True):
        work[kind] = work.get(kind, 0.0) + each
    most = knowledge.exploration.setup.preset.operators
    for kind in sorted(largest, key=lambda name: (-work[name], name))[:most]:
        names = sorted({name for each in largest.values() for name in each})
        if all(_is_explained(knowledge, name) for name in names):
            break
        knowledge = looked_at(knowledge, f"measuring {kind}", [largest[kind][name] for name in sorted(largest[kind])])
    return knowledge


def _largest(knowledge: Knowledge) -> dict[str, dict[str, CandidateKernel]]:
    """Return the operator with most work of each kind and target."""
    found: dict[str, dict[str, tuple[float, CandidateKernel]]] = {}
    for candidate in knowledge.exploration.pool:
        profile = knowledge.estimates.profile(candidate.sub_graph.nodes)
        if not profile or not candidate.target.mixable or not is_operator(knowledge.exploration, candidate):
            continue
        kind, size = knowledge.estimates.kind_of(candidate.sub_graph.nodes), sum(profile.values())
        known = found.setdefault(kind, {}).get(candidate.target.name)
        if known is None or size > known[0]:
            found[kind][candidate.target.name] = size, candidate
    return {kind: {name: candidate for name, (_, candidate) in each.items()} for kind, each in found.items()}


def _is_explained(knowledge: Knowledge, target: str) -> bool:
    """Return whether the operators seen on a target make up most of the model."""
    pool, estimates = knowledge.exploration.pool, knowledge.estimates
    wholes = [
        cost for c in pool if c.target.name == target and pool.is_whole(c) and (cost := pool.selected_us(c)) is not None
    ]
    if wholes:
        return estimates.known_us(target, pool.whole) >= _EXPLAINED * min(wholes)
    profile = estimates.profile(pool.whole)
    known = sum(work for kind, work in profile.items() if estimates.is_known(target, kind))
    return known >= _EXPLAINED * sum(profile.values())
