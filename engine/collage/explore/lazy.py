"""Phase 3 by the lazy search: what the plan that looks best lacks is measured, and nothing else.

First a few operators teach what each toolchain is good at.

`Explorer` measures a set of candidates that is fixed beforehand and says of it which plan is the best. Most of them
turn out not to matter: a region that is slow on one toolchain is slow in all the places that it overlaps with. Here
the same candidates are proposed, and what is not measured is estimated (`collage_core.search.estimates`). As in
`Explorer`, what is done depends on recorded costs alone.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from collage.explore.exhaustive import Explored, Explorer
from collage_core.candidates.pool import CacheKey, PoolCosts
from collage_core.candidates.proposals import Proposals
from collage_core.contract import INVALID, Joins, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.work import estimated_work_us, work_kinds
from collage_core.search import FittedEstimates, SearchCandidate, SearchResult, lazy_search, prepare

_EXPLAINED = 0.8
"""Enough is known of a target when what is known of it makes up so much of what the whole model takes there."""
WITHIN = 1.25
"""A mix predicted to be slower than this many times the best plan is not worth timing. Predictions are sums of costs
that were measured at different moments; on a shared machine they miss by a fifth."""

_GAIN = 0.02
"""A plan that promises to save less is not followed: no plan is chosen for less (`decision.DISPLACE_BELOW`)."""


class LazyExplorer(Explorer):
    """An exploration that asks for what the best plan lacks; takes what `Explorer` takes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kinds = work_kinds(self._graph)
        self._work = estimated_work_us(self._graph)
        self._estimates = FittedEstimates(self._work, self._kinds)
        self._learnt: set[tuple[str, CacheKey]] = set()
        self._wanted: set[tuple[str, int]] = set()

    def run(self) -> Explored:
        """See `Explorer.run`. The result is `exact` only if everything turned out to be measured."""
        explored = super().run()
        return dataclasses.replace(explored, result=dataclasses.replace(explored.result, method="lazy"))

    def _gather(self, proposals: dict[str, Proposals]) -> tuple[int, ...]:
        """Whole models, and an operator of each kind; gives the cuts, and has regions between them proposed."""
        self._look("measuring whole models", self._worthwhile(proposals, operators=0))
        self._probe()
        return self._cut_anew()

    def _cut_anew(self) -> tuple[int, ...]:
        """Has regions proposed between the cuts that what is known suggests."""
        cuts = self._cuts()
        self._propose(cuts)
        self._wanted |= self._regions(cuts)
        return cuts

    def _regions(self, cuts: Sequence[int]) -> set[tuple[str, int]]:
        """Target and nodes of what is worth asking for.

        Of targets that join anything, parts of what they take between two neighbouring cuts are not: to the estimates
        a region costs what its parts do, so there would be no end of asking for other ways to take it apart.
        """
        ends = [*cuts, len(self._graph)]
        wanted: set[tuple[str, int]] = set()
        inside: dict[tuple[str, int], list[int]] = {}
        for candidate in self._pool:
            nodes, target = candidate.sub_graph.nodes, candidate.target
            first = bisect.bisect_right(ends, (nodes & -nodes).bit_length() - 1)
            if target.joins is not Joins.ANY or nodes.bit_length() > ends[first]:
                wanted.add((target.name, nodes))
            else:
                inside.setdefault((target.name, first), []).append(nodes)
        for (name, _), masks in inside.items():
            largest: list[int] = []
            for nodes in sorted(masks, key=lambda mask: (-mask.bit_count(), mask)):
                if all(nodes & ~other for other in largest):
                    largest.append(nodes)
            wanted.update((name, nodes) for nodes in largest)
        return wanted

    def _look(self, what: str, candidates: Iterable[CandidateKernel]) -> None:
        """Measures candidates and learns from what comes out."""
        looked_at = list(candidates)
        self._measure(what, looked_at)
        for candidate in looked_at:
            name, cost = candidate.target.name, self._pool.selected_us(candidate)
            key = name, self._pool.cache_key(candidate)  # what was measured for two targets teaches of both
            if cost is not None and key not in self._learnt:
                self._learnt.add(key)
                nodes, alone = candidate.sub_graph.nodes, self._is_operator(candidate)
                self._estimates.learn(name, nodes, cost, alone=alone)

    def _probe(self) -> None:
        """Measures the largest operator of each kind on each target, until they explain what the whole model takes."""
        largest: dict[str, dict[str, tuple[float, CandidateKernel]]] = {}  # by kind and target
        work: dict[str, float] = {}
        for kind, each in zip(self._kinds, self._work, strict=True):
            work[kind] = work.get(kind, 0.0) + each
        for candidate in self._pool:
            profile = self._estimates.profile(candidate.sub_graph.nodes)
            if not profile or not candidate.target.mixable or not self._is_operator(candidate):
                continue
            kind, size = self._estimates.kind_of(candidate.sub_graph.nodes), sum(profile.values())
            known = largest.setdefault(kind, {}).get(candidate.target.name)
            if known is None or size > known[0]:
                largest[kind][candidate.target.name] = size, candidate
        for kind in sorted(largest, key=lambda name: (-work[name], name))[: self._preset.operators]:
            names = sorted({name for each in largest.values() for name in each})
            if all(map(self._is_explained, names)):
                break
            self._look(f"measuring {kind}", [largest[kind][name][1] for name in sorted(largest[kind])])

    def _is_explained(self, target: str) -> bool:
        """Whether the operators seen on a target make up most of the model."""
        whole = self._pool.whole
        wholes = [
            cost
            for c in self._pool
            if c.target.name == target and self._pool.is_whole(c) and (cost := self._pool.selected_us(c)) is not None
        ]
        if wholes:
            return self._estimates.known_us(target, whole) >= _EXPLAINED * min(wholes)
        profile = self._estimates.profile(whole)
        known = sum(work for kind, work in profile.items() if self._estimates.is_known(target, kind))
        return known >= _EXPLAINED * sum(profile.values())

    def _believed_weights(self) -> list[float]:
        """How far apart targets are expected to be on each node."""
        weights = super()._believed_weights()
        targets = sorted({c.target.name for c in self._pool if c.target.mixable})
        for index, kind in enumerate(self._kinds):
            known = [self._estimates.known_us(t, 1 << index) for t in targets if self._estimates.is_known(t, kind)]
            if len(known) > 1:
                weights[index] = max(known) - min(known)
        return weights

    def _improve(self) -> None:
        """Measures what the best mixed plan lacks, joins its neighbours, and cuts anew by what was learnt of it."""
        for _ in range(1 + self._preset.coalesce_rounds):
            path = self._lazily()
            before = len(self._pool)
            if path is not None and self._is_worth_following(path):
                merged = self._merged(path)
                self._wanted |= {(c.target.name, c.sub_graph.nodes) for c in merged}
                self._look("measuring merged neighbours", merged)
            self._cut_anew()
            if len(self._pool) == before:
                break

    def _lazily(self) -> SearchResult | None:
        """The lazy search over plans of more than one kernel: what the others cost is known."""
        pool, costs = self._pool, PoolCosts(self._pool)

        def ask(chosen: SearchCandidate) -> None:
            self._look("measuring what the best plan lacks", [pool.candidate(chosen)])

        def allow(chosen: SearchCandidate) -> bool:
            if chosen.nodes == pool.whole:
                return False
            return (chosen.target, chosen.nodes) in self._wanted or not isinstance(costs.cost(chosen), Unmeasured)

        try:
            found = lazy_search(
                prepare(pool.problem()),
                costs,
                self._estimates,
                ask,
                allow=allow,
                stop=lambda: self._is_spent,
                gain=_GAIN,
                follow=self._is_worth_following,
            )
        except NoCoverError:
            return None
        self._rounds += found.searches
        return found.result

    def _is_worth_following(self, path: SearchResult) -> bool:
        """Whether a plan may mix toolchains to some profit, going by what it promises."""
        pool = self._pool
        wholes = {c.target.name: cost for c in pool if pool.is_whole(c) and (cost := pool.alone_us(c)) is not None}
        if len(path.targets) == 1 and path.targets <= wholes.keys():
            # no mix; and that some target's parts are as fast as its whole model is hoped anyway
            return path.total_us < wholes[min(path.targets)] * (1 - _GAIN)
        return path.total_us <= min(wholes.values(), default=INVALID) * WITHIN
