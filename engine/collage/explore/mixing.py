"""Search for the best plan of several kernels, measuring what it lacks."""

from __future__ import annotations

import dataclasses

from collage.explore.learning import Knowledge, looked_at
from collage.explore.measuring import is_unmeasured
from collage_core.contract import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search import SearchCandidate, SearchResult, lazy_search, prepare

_FOLLOWED = 1.05
"""Ratio to the best whole model above which what a plan lacks is not measured."""
_GAIN = 0.02
"""Relative gain below which a plan is not followed; `decision.DISPLACE_BELOW` would not accept it."""


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
        return self.knowledge.beliefs.expected_us(candidate)

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        return self.knowledge.beliefs.at_least_us(candidate)

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


def best_mix(knowledge: Knowledge) -> tuple[Knowledge, SearchResult | None]:
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
            follow=lambda path: is_worth_following(asking.knowledge, path),
        )
    except NoCoverError:
        return asking.knowledge, None
    exploration = asking.knowledge.exploration
    searches = dataclasses.replace(exploration, rounds=exploration.rounds + found.searches)
    return asking.knowledge.after(searches), found.result


def is_worth_following(knowledge: Knowledge, path: SearchResult) -> bool:
    """Return whether a plan may mix toolchains to some profit, going by what its kernels are hoped to take together."""
    exploration = knowledge.exploration
    pool = exploration.pool
    lacking = [c for c in path.candidates if is_unmeasured(exploration, pool.candidate(c))]
    apart = sum(knowledge.beliefs.expected_us(candidate) for candidate in lacking)
    total_us = path.total_us - apart + knowledge.beliefs.hoped_together_us(lacking)
    wholes = {c.target.name: cost for c in pool if pool.is_whole(c) and (cost := pool.alone_us(c)) is not None}
    if len(path.targets) == 1 and path.targets <= wholes.keys():
        # no mix; its gain can only be that some target's parts are faster than its whole model
        return total_us < wholes[min(path.targets)] * (1 - _GAIN)
    return total_us <= min(wholes.values(), default=INVALID) * _FOLLOWED
