"""Phase 3 by the lazy search: what the plan that looks best lacks is measured, and nothing else.

First a few operators teach what each toolchain is good at.

`explore_exhaustively` measures a set of candidates that is fixed beforehand and says of it which plan is the best. Most
of them turn out not to matter: a region that is slow on one toolchain is slow in all the places that it overlaps with.
Here the same candidates are proposed, and what is not measured is estimated (`collage_core.search.estimates`). As
there, what is done depends on recorded costs alone.
"""

from __future__ import annotations

import dataclasses

from collage.explore.covering import covered
from collage.explore.exhaustive import begun, concluded
from collage.explore.exploration import ExplorationSetup, Explored
from collage.explore.learning import Knowledge, knowing_nothing, looked_at, probed
from collage.explore.measuring import is_unmeasured
from collage.explore.proposing import cuts_of, proposed, worth_measuring
from collage.explore.regions import worth_asking
from collage.explore.searching import merged_on
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search import SearchCandidate, SearchResult, lazy_search, prepare

WITHIN = 1.25
"""Ratio to the best plan's prediction above which a mixed plan is not timed.

Predictions are sums of costs that were measured at different times; on a shared machine they are off by a fifth.
"""

_GAIN = 0.02
"""Relative gain below which a plan is not followed; `decision.DISPLACE_BELOW` would not accept it."""


def explore_lazily(setup: ExplorationSetup, pool: CandidatePool) -> Explored:
    """Measure what the best plan lacks, until it lacks nothing that is worth it.

    Args:
        setup: Targets, preset, and what measures.
        pool: Candidates to begin with, usually none.

    Returns:
        What was found; its result is `exact` only if everything turned out to be measured.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    knowledge = knowing_nothing(begun(setup, pool))
    wholes = worth_measuring(knowledge.exploration, operators=0)
    knowledge = probed(looked_at(knowledge, "measuring whole models", wholes))
    knowledge, cuts = _cut_anew(knowledge)
    knowledge = knowledge.after(covered(knowledge.exploration, cuts))
    explored = concluded(_improved(knowledge).exploration)
    return dataclasses.replace(explored, result=dataclasses.replace(explored.result, method="lazy"))


def _cut_anew(knowledge: Knowledge) -> tuple[Knowledge, tuple[int, ...]]:
    """Have regions proposed between the cuts that what is known suggests."""
    cuts = cuts_of(knowledge.exploration, knowledge.weights())
    knowledge = knowledge.after(proposed(knowledge.exploration, cuts))
    return knowledge.wanting(worth_asking(knowledge.exploration, cuts)), cuts


def _improved(knowledge: Knowledge) -> Knowledge:
    """Measure what the best mixed plan lacks, join its neighbours, and cut anew by what was learnt of it."""
    for _ in range(1 + knowledge.exploration.setup.preset.coalesce_rounds):
        knowledge, path = _lazily(knowledge)
        before = len(knowledge.exploration.pool)
        if path is not None and _is_worth_following(knowledge.exploration.pool, path):
            merged = merged_on(knowledge.exploration, path)
            knowledge = knowledge.wanting((c.target.name, c.sub_graph.nodes) for c in merged)
            knowledge = looked_at(knowledge, "measuring merged neighbours", merged)
        knowledge, _ = _cut_anew(knowledge)
        if len(knowledge.exploration.pool) == before:
            break
    return knowledge


class _Asking:
    """Answers the lazy search by what is known, which grows with each candidate that it asks for.

    Attributes:
        knowledge: What is known now.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        """See `CostSource`."""
        pool = self.knowledge.exploration.pool
        return pool.cost(pool.candidate(candidate))

    def expected_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        return self.knowledge.estimates.expected_us(candidate)

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        return self.knowledge.estimates.at_least_us(candidate)

    def measure(self, candidate: SearchCandidate) -> None:
        """Measure what the best plan lacks."""
        wanted = self.knowledge.exploration.pool.candidate(candidate)
        self.knowledge = looked_at(self.knowledge, "measuring what the best plan lacks", [wanted])

    def allow(self, candidate: SearchCandidate) -> bool:
        """Return whether a candidate may be used: what all in one kernel costs is known without a search."""
        pool = self.knowledge.exploration.pool
        if candidate.nodes == pool.whole:
            return False
        known = (candidate.target, candidate.nodes) in self.knowledge.wanted
        return known or not is_unmeasured(self.knowledge.exploration, pool.candidate(candidate))


def _lazily(knowledge: Knowledge) -> tuple[Knowledge, SearchResult | None]:
    """Run the lazy search over plans of more than one kernel."""
    asking = _Asking(knowledge)
    try:
        found = lazy_search(
            prepare(knowledge.exploration.pool.problem()),
            asking,
            asking,
            asking.measure,
            allow=asking.allow,
            stop=lambda: asking.knowledge.exploration.is_spent,
            gain=_GAIN,
            follow=lambda path: _is_worth_following(asking.knowledge.exploration.pool, path),
        )
    except NoCoverError:
        return asking.knowledge, None
    exploration = asking.knowledge.exploration
    searches = dataclasses.replace(exploration, rounds=exploration.rounds + found.searches)
    return asking.knowledge.after(searches), found.result


def _is_worth_following(pool: CandidatePool, path: SearchResult) -> bool:
    """Return whether a plan may mix toolchains to some profit, going by what it promises."""
    wholes = {c.target.name: cost for c in pool if pool.is_whole(c) and (cost := pool.alone_us(c)) is not None}
    if len(path.targets) == 1 and path.targets <= wholes.keys():
        # no mix; and that some target's parts are as fast as its whole model is hoped anyway
        return path.total_us < wholes[min(path.targets)] * (1 - _GAIN)
    return path.total_us <= min(wholes.values(), default=INVALID) * WITHIN
