"""Search for the best plan, measuring what might be on it."""

from __future__ import annotations

import dataclasses

from collage.explore.learning import Knowledge, looked_at
from collage_core.contract import Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search import DRAWS, SearchCandidate, SearchResult, lazy_search, prepare

_GAIN = 0.07
"""Share of the best plan that must be to gain by measuring more, by the mean over draws, relative to the noise of a
measurement: what is less would not be told from it.
"""


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

    def measure(self, candidate: SearchCandidate) -> None:
        """Measure what best plans lack."""
        wanted = self.knowledge.exploration.pool.candidate(candidate)
        self.knowledge = looked_at(self.knowledge, "measuring what best plans lack", [wanted])


@dataclasses.dataclass(frozen=True)
class _Drawn:
    """The estimates of one draw."""

    asking: _Asking
    draw: int

    def expected_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        return self.asking.knowledge.beliefs.drawn_us(candidate, self.draw)

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`; what is believed proves nothing."""
        return 0.0


def best_plan(knowledge: Knowledge) -> tuple[Knowledge, SearchResult | None]:
    """Run the lazy search; the plan is None if nothing that was measured covers the graph."""
    asking = _Asking(knowledge)
    pool = knowledge.exploration.pool
    try:
        found = lazy_search(
            prepare(pool.problem()),
            asking,
            [_Drawn(asking, draw) for draw in range(DRAWS)],
            asking.measure,
            # what all in one kernel costs was measured, or is not to be
            allow=lambda c: c.nodes != pool.whole or not isinstance(asking.cost(c), Unmeasured),
            stop=lambda: asking.knowledge.exploration.is_spent,
            gain=_GAIN * knowledge.noise,
        )
    except NoCoverError:
        return asking.knowledge, None
    exploration = asking.knowledge.exploration
    searches = dataclasses.replace(exploration, rounds=exploration.rounds + found.searches)
    return asking.knowledge.after(searches), found.result
