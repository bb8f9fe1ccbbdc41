"""Search for the best plan, measuring what might be on it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

import numpy as np

from collage.explore.learning import Knowledge, looked_at
from collage_core.contract import Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel
from collage_core.search import Matrix, SearchCandidate, SearchResult, Vector, lazy_search, prepare
from collage_core.search.exact import Allow

_GAIN = 0.07
"""Share of the best plan that must be to gain by measuring more, by the mean over draws, relative to the noise of a
measurement: what is less would not be told from it.
"""
_WORTH = 0.06
"""Share of the best plan that a single measurement must promise, likewise: where there are hundreds of small kernels,
all together promise more than there is time to look for.
"""
_OPTIMISTIC_GAIN = 0.02
"""Share of the best plan that a neighbour of it has to save, by an optimistic estimate, to be measured."""


class _Asking:
    """Answers the lazy search by what is known, which grows with what it asks for.

    Attributes:
        knowledge: What is known now.
        measuring_s: Seconds spent measuring.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.measuring_s = 0.0

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        """See `CostSource`."""
        pool = self.knowledge.exploration.pool
        return pool.cost(pool.candidate(candidate))

    def measure(self, candidates: Sequence[SearchCandidate]) -> None:
        """Measure what best plans lack."""
        began = time.monotonic()
        wanted = [self.knowledge.exploration.pool.candidate(candidate) for candidate in candidates]
        self.knowledge = looked_at(self.knowledge, "measuring what best plans lack", wanted)
        self.measuring_s += time.monotonic() - began

    def tell(self, best: SearchResult) -> None:
        """Show and remember the best measured plan of this moment."""
        self.knowledge = self.knowledge.after(self.knowledge.exploration.told(best))

    def stop(self, lacking: int) -> bool:
        """Return whether nothing more is to be measured; see `lazy_search`."""
        self.knowledge = self.knowledge.waiting(lacking)
        exploration = self.knowledge.exploration
        return exploration.is_spent or exploration.has_run_enough or self.knowledge.is_in_vain

    def expected_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
        """See `Estimates`."""
        return self.knowledge.beliefs.drawn_us(candidates)

    def at_least_us(self, candidates: Sequence[SearchCandidate]) -> Vector:
        """See `Estimates`; what is believed proves nothing."""
        return np.zeros(len(candidates))


class _AskingOptimistically(_Asking):
    """The same, with one optimistic estimate of each kernel in place of draws."""

    def expected_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
        """See `Estimates`."""
        return np.array([[self.knowledge.beliefs.optimistic_us(each.target, each.nodes) for each in candidates]])


def best_plan(knowledge: Knowledge) -> tuple[Knowledge, SearchResult | None]:
    """Run the lazy search; the plan is None if nothing that was measured covers the graph."""
    asking, pool, given_up = _Asking(knowledge), knowledge.exploration.pool, knowledge.exploration.given_up

    def allow(candidate: SearchCandidate) -> bool:
        # what all in one kernel costs was measured, or is not to be; a target that hangs is asked for nothing more
        is_asked_for = candidate.nodes != pool.whole and candidate.target not in given_up
        return is_asked_for or not isinstance(asking.cost(candidate), Unmeasured)

    noise = knowledge.noise * knowledge.beliefs.noisier
    return _searched(asking, allow, gain=_GAIN * noise, worth=_WORTH * noise)


def looked_around(knowledge: Knowledge, near: Iterable[CandidateKernel]) -> tuple[Knowledge, SearchResult | None]:
    """Measure what is near to the best plan and, by optimistic estimates, clearly better; return the best plan, too.

    Draws tell what many kernels may save together. A single one that is far from what is believed is in few of them.

    Args:
        knowledge: What is known so far; something that was measured covers the graph.
        near: Kernels near to those of the best plan, in the pool.
    """
    asking, pool = _AskingOptimistically(knowledge), knowledge.exploration.pool
    named = {
        (each.target.name, each.sub_graph.nodes)
        for each in near
        if each.sub_graph.nodes != pool.whole and each.target.name not in knowledge.exploration.given_up
    }

    def allow(candidate: SearchCandidate) -> bool:
        return (candidate.target, candidate.nodes) in named or not isinstance(asking.cost(candidate), Unmeasured)

    return _searched(asking, allow, gain=_OPTIMISTIC_GAIN)


def _searched(
    asking: _Asking, allow: Allow, *, gain: float, worth: float = 0.0
) -> tuple[Knowledge, SearchResult | None]:
    """Run the lazy search and count its searches and seconds."""
    began = time.monotonic()
    try:
        found = lazy_search(
            prepare(asking.knowledge.exploration.pool.problem()),
            asking,
            asking,
            asking.measure,
            allow=allow,
            stop=asking.stop,
            gain=gain,
            worth=worth,
            tell=asking.tell,
        )
    except NoCoverError:
        return asking.knowledge, None
    exploration = asking.knowledge.exploration
    spent = time.monotonic() - began - asking.measuring_s
    exploration = dataclasses.replace(
        exploration, rounds=exploration.rounds + found.searches, search_s=exploration.search_s + spent
    )
    return asking.knowledge.after(exploration), found.result
