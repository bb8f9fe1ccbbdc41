"""Candidates' costs, as a step of an exploration may see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from collage_core.candidates.refusals import Rejection
from collage_core.contract import INVALID, UNMEASURED, Cost, Unmeasured
from collage_core.fusion import CandidateKernel, SubGraph

CacheKey: TypeAlias = tuple[str, str]
"""Target name and sub-graph key; candidates with equal keys share their cost."""


class KnownCosts(Protocol):
    """Known costs and rejections of candidates; implemented by `MeasuringCostSource`."""

    def key(self, sub_graph: SubGraph) -> str:
        """Return what makes a sub-graph the same as another to measure."""

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        """Return what a candidate costs, by fresh samples where there are some or by those it was selected by."""

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Return why a candidate that was tried cannot be used; None if it can, or nobody tried."""


@dataclasses.dataclass(frozen=True, eq=False)
class Costs:
    """What one run has found out so far, out of everything that a source knows.

    A later run over the same database takes the same steps because a cost counts from the step on that asked for it.

    Attributes:
        source: Knows costs, also those that this run has not asked for.
        reached: What this run measured or looked up; nothing else has a cost. None if everything that is known counts.
        confirmed: What is costed by fresh samples; everything else by the samples it was selected by.
        in_place_us: What kernels take between their neighbours in plans that were timed, which counts before samples.
        elsewhere: What samples of a target's other kernels are multiplied by, to be compared with these times; by 1 of
            a target that is missing.
    """

    source: KnownCosts
    reached: frozenset[CacheKey] | None = None
    confirmed: frozenset[CacheKey] = frozenset()
    in_place_us: Mapping[CacheKey, float] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[str, float] = dataclasses.field(default_factory=dict)
    _answers: dict[tuple[CacheKey, bool], Cost | Unmeasured] = dataclasses.field(default_factory=dict, repr=False)

    def key(self, candidate: CandidateKernel) -> CacheKey:
        """Return what a candidate shares its cost with."""
        return candidate.measured_as.name, self.source.key(candidate.sub_graph)

    def cost(self, candidate: CandidateKernel, *, confirmed: bool | None = None) -> Cost | Unmeasured:
        """Return what a candidate costs.

        Args:
            candidate: The candidate.
            confirmed: Whether to go by fresh samples; None to go by its time in place, or by fresh samples if this run
                confirmed it.
        """
        key = self.key(candidate)
        if self.reached is not None and key not in self.reached:
            return UNMEASURED
        if confirmed is None and key in self.in_place_us:
            return self.in_place_us[key]
        fresh = key in self.confirmed if confirmed is None else confirmed
        known = self._answers.get((key, fresh))
        if known is None:
            known = self._answers[key, fresh] = self.source.cost(candidate, confirmed=fresh)
        if confirmed is not None or isinstance(known, Unmeasured):
            return known
        return known * self.elsewhere.get(candidate.target.name, 1.0)

    def selected_us(self, candidate: CandidateKernel) -> float | None:
        """Return the cost by the samples a candidate was selected by; None if it is unmeasured or unusable."""
        cost = self.cost(candidate, confirmed=False)
        return None if isinstance(cost, Unmeasured) or cost == INVALID else cost

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Return why a candidate that was tried cannot be used; None if it can, or this run did not reach it."""
        # the empty set first: a key may need values of a run of the whole model, which may be what failed
        if self.reached is not None and (not self.reached or self.key(candidate) not in self.reached):
            return None
        return self.source.rejection(candidate)

    def afresh(self) -> Costs:
        """Return the costs as a run sees them that has asked for none yet, whatever the source knows."""
        return Costs(self.source, reached=frozenset())

    def reaching(self, keys: Iterable[CacheKey]) -> Costs:
        """Return the costs after these were measured or looked up: the source is asked for them anew."""
        fresh = frozenset(keys)
        answers = {known: cost for known, cost in self._answers.items() if known[0] not in fresh}
        reached = None if self.reached is None else self.reached | fresh
        return dataclasses.replace(self, reached=reached, _answers=answers)

    def confirming(self, keys: Iterable[CacheKey]) -> Costs:
        """Return the costs where these count by fresh samples."""
        return dataclasses.replace(self, confirmed=self.confirmed.union(keys))

    def in_place(self, times_us: Mapping[CacheKey, float]) -> Costs:
        """Return the costs where these kernels take what they took in a plan, in microseconds."""
        return dataclasses.replace(self, in_place_us={**self.in_place_us, **times_us})

    def alone(self) -> Costs:
        """Return the costs by samples alone, as if nothing had been timed in place."""
        return dataclasses.replace(self, in_place_us={}, elsewhere={})

    def off_by(self, factors: Mapping[str, float]) -> Costs:
        """Return the costs where a target's kernels without a time in place take so many times what samples say."""
        return dataclasses.replace(self, elsewhere=factors)
