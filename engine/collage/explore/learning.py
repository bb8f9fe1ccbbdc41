"""Learn what each toolchain is good at from what is measured, to estimate what is not."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from collage.explore.exploration import Exploration
from collage.explore.measuring import is_operator, measured
from collage.explore.profiling import NodeTimes, first_beliefs, profiles_of, spared
from collage.explore.proposing import weights_from_work
from collage_core.candidates.boundary import boundary_bytes
from collage_core.candidates.costs import CacheKey
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits, union_of
from collage_core.ir.graph.work import estimated_work_us, work_kinds
from collage_core.search import GUESSED, NOISE, Beliefs, TargetBelief

_EXPLAINED = 0.8
"""Share of the work whose kinds must have been seen on a target without a profile before it counts as known."""
_HEAVY = 0.02
"""Share of the fastest whole model that an operator has to take on some target to be measured alone."""
_DISPUTED = 1.5
"""Factor by which two profiles have to differ on an operator, beyond what they differ by usually, likewise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """How long measuring goes on without a cheaper plan.

    Attributes:
        best_ms: What the best plan was predicted to take when the count began.
        until: Number of measurements after which it ends.
    """

    best_ms: float
    until: int


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
        spreads: By how much the blocks of each measurement differed, as a share of it.
        patience: How long measuring goes on if the best plan stays the same; None before there is one.
    """

    exploration: Exploration
    work: Sequence[float]
    kinds: Sequence[str]
    beliefs: Beliefs
    profiled: frozenset[str] = frozenset()
    learnt: Mapping[tuple[str, CacheKey, int], float] = dataclasses.field(default_factory=dict)
    spreads: tuple[float, ...] = ()
    patience: Patience | None = None

    @property
    def noise(self) -> float:
        """Standard deviation of a measurement, as a share of it: what disturbs one block disturbs the next, too."""
        return max(NOISE, statistics.median(self.spreads)) if self.spreads else NOISE

    def after(self, exploration: Exploration) -> Knowledge:
        """Return the same after a step from which nothing was learnt."""
        return dataclasses.replace(self, exploration=exploration)

    def waiting(self, lacking: int) -> Knowledge:
        """Return the same before a measurement, with new patience if the best plan has changed since it was given.

        Args:
            lacking: Fewest kernels that a plan lacks which may be cheaper: until these are measured it is none.
        """
        history = self.exploration.history
        if not history or (self.patience is not None and self.patience.best_ms == history[-1].predicted_ms):
            return self
        setup = self.exploration.setup
        patience = setup.preset.patience * sum(rule.target.mixable for rule in setup.rules)
        until = len(self.learnt) + max(patience, lacking)
        return dataclasses.replace(self, patience=Patience(history[-1].predicted_ms, until))

    @property
    def is_in_vain(self) -> bool:
        """Whether the best plan has stayed the same for as many measurements as there was patience."""
        return self.patience is not None and len(self.learnt) >= self.patience.until

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
    beliefs = Beliefs(
        {
            rule.target.name: TargetBelief(
                work, kinds, [GUESSED] * len(work), spared(exploration, rule.target), seed=seed
            )
            for seed, rule in enumerate(exploration.setup.rules)
        },
        boundary_bytes(exploration.pool.values),
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
    exploration = measured(knowledge.exploration, what, looked, brief=True)
    fresh: dict[tuple[str, CacheKey, int], float] = {}
    for candidate in looked:
        cost = exploration.pool.selected_us(candidate)
        # what was measured for two targets teaches of both
        key = candidate.target.name, exploration.pool.cache_key(candidate), candidate.sub_graph.nodes
        if cost is not None and key not in knowledge.learnt:
            fresh[key] = cost
    spreads = [*knowledge.spreads, *(_spread(exploration, candidate) for candidate in looked)]
    knowledge = dataclasses.replace(
        knowledge,
        exploration=exploration,
        learnt={**knowledge.learnt, **fresh},
        spreads=tuple(spread for spread in spreads if spread is not None),
    )
    beliefs = knowledge.beliefs.learning(((name, nodes, us) for (name, _, nodes), us in fresh.items()), knowledge.noise)
    return dataclasses.replace(knowledge, beliefs=beliefs)


def _spread(exploration: Exploration, candidate: CandidateKernel) -> float | None:
    """Return the standard deviation of a measurement's blocks, relative to their mean; None if there are too few.

    It is divided by what the median of that of so few is, were the deviation 1 (the Wilson-Hilferty approximation of
    the chi-squared distribution), because the median over candidates is taken.
    """
    medians_us = exploration.setup.source.medians_us(candidate, confirmed=False)
    if len(medians_us) < 2 or not (mean_us := statistics.fmean(medians_us)):
        return None
    usual = math.pow(1 - 2 / (9 * (len(medians_us) - 1)), 1.5)
    return statistics.stdev(medians_us) / mean_us / usual


def with_profiles(knowledge: Knowledge, candidates: Iterable[CandidateKernel]) -> Knowledge:
    """Start the beliefs anew from the toolchains' own profiles of kernels that were measured.

    What a profile says of an operator holds inside that kernel. Alone, or beside others, it may take a tenth or ten
    times as long, because a library chooses layouts for all of a kernel. So the heavy operators on which the profiles
    disagree are measured alone, too.

    Args:
        knowledge: What is known so far.
        candidates: Measured kernels of several operators.
    """
    profiles = profiles_of(knowledge.exploration, candidates, knowledge.work)
    if not profiles:
        return knowledge
    knowledge = looked_at(knowledge, "measuring heavy operators alone", _disputed(knowledge.exploration, profiles))
    graph = knowledge.exploration.graph
    alone: dict[str, dict[int, float]] = {}
    for (name, _, nodes), cost in knowledge.learnt.items():
        if (nodes & graph.needs_kernel).bit_count() == 1:
            alone.setdefault(name, {})[nodes] = cost
    beliefs = first_beliefs(knowledge.exploration, profiles, alone, knowledge.work, knowledge.kinds)
    seen = ((name, nodes, cost) for (name, _, nodes), cost in knowledge.learnt.items())
    beliefs = beliefs.learning(seen, knowledge.noise)
    return dataclasses.replace(knowledge, beliefs=beliefs, profiled=frozenset(profiles))


def _disputed(exploration: Exploration, profiles: Mapping[str, NodeTimes]) -> list[CandidateKernel]:
    """Return every target's kernels of the heavy operators on which profiles disagree, heaviest first.

    They disagree if one target takes longer than another by more than it usually does. A profile says nothing of an
    operator that it does not have.
    """
    found: dict[int, list[CandidateKernel]] = {}
    for candidate in exploration.pool:
        if is_operator(exploration, candidate) and candidate.target.mixable:
            found.setdefault(candidate.sub_graph.nodes & exploration.graph.needs_kernel, []).append(candidate)
    taken = {
        nodes: {
            name: sum(times[node] for node in iterate_bits(nodes))
            for name, times in profiles.items()
            if all(node in times for node in iterate_bits(nodes))
        }
        for nodes in found
    }
    seen = [times for times in taken.values() if len(times) == len(profiles) and min(times.values()) > 0]
    usual = {
        name: statistics.median([times[name] / min(times.values()) for times in seen] or [1.0]) for name in profiles
    }
    complete = [times for times in profiles.values() if all(node in times for node in iterate_bits(union_of(found)))]
    whole_us = min(sum(times.values()) for times in complete or profiles.values())
    heavy = []
    for nodes, times in taken.items():
        relative = [time / usual[name] for name, time in times.items()]
        if len(times) > 1 and max(times.values()) > _HEAVY * whole_us and max(relative) >= _DISPUTED * min(relative):
            heavy.append(nodes)
    heavy.sort(key=lambda nodes: (-max(taken[nodes].values()), nodes))
    return [each for nodes in heavy[: exploration.setup.preset.operators] for each in found[nodes]]


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
