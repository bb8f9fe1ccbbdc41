"""Sources of candidate costs; the search itself never measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from collage_core.contract.cost import UNMEASURED, Cost, Unmeasured, checked_cost
from collage_core.search.problem import SearchCandidate

PICOSECONDS_PER_US = 1_000_000
"""Costs are compared as whole picoseconds: sums are exact, so ties do not depend on the order of addition."""


class CostSource(Protocol):
    """Returns the cost of a candidate; may measure it on demand."""

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        """Return the cost of one candidate.

        Called once per candidate and search, in the order of the problem. The answer holds for all candidates
        of the same target and key.

        Returns:
            Microseconds, finite and >= 0; `INVALID` if the candidate cannot be used; `UNMEASURED` if the cost is
            unknown, which excludes the candidate and makes the result inexact.
        """


class CostTable:
    """Costs by `(target, key)`; candidates not in the table are unmeasured.

    Examples:
        >>> table = CostTable({("fast", "conv"): 12.5})
        >>> table.cost(SearchCandidate(nodes=1, target="fast", key="conv"))
        12.5
        >>> table.cost(SearchCandidate(nodes=1, target="slow", key="conv"))
        <Unmeasured.UNMEASURED: 'unmeasured'>
    """

    def __init__(self, costs_us: Mapping[tuple[str, str], Cost]) -> None:
        self._costs_us = {key: checked_cost(cost) for key, cost in costs_us.items()}

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        """See `CostSource`."""
        return self._costs_us.get((candidate.target, candidate.key), UNMEASURED)


def cost_of(source: CostSource, candidate: SearchCandidate) -> Cost | Unmeasured:
    """Query the cost of a candidate, and check the answer.

    Raises:
        ValueError: If the answer is NaN or negative; the message names the candidate.
    """
    answer = source.cost(candidate)
    try:
        return answer if isinstance(answer, Unmeasured) else checked_cost(answer)
    except ValueError as error:
        raise ValueError(f"{candidate.target}, {candidate.key!r}: {error}") from None


def ask(source: CostSource, candidates: Iterable[SearchCandidate]) -> dict[SearchCandidate, Cost | Unmeasured]:
    """Query the cost of every candidate once, and check the answers.

    Raises:
        ValueError: If an answer is NaN or negative.
    """
    answers: dict[SearchCandidate, Cost | Unmeasured] = {}
    for candidate in candidates:
        if candidate not in answers:
            answers[candidate] = cost_of(source, candidate)
    return answers
