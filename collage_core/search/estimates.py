"""Learn cost estimates: the speed of each target at each kind of work, and its saving from joining."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterable, Sequence

from collage_core.search.problem import SearchCandidate, bits

_MOSTLY = 0.8
"""Minimum share of known kinds in the work of a group for its measurement to count towards the joining factor."""


class FittedEstimates:
    """Costs as sums over nodes, each of estimated work times a ratio, and of several nodes times a factor for joining.

    The ratio of a kind of work on a target is that of what was measured alone there: all its cost over all its work.
    The factor of a target is the median, over what was measured of several nodes, of its cost over such a sum. Where
    nothing was measured there is hope: a kind runs as fast as it does anywhere, and joining saves, or somewhat more.
    Nothing is proven by such an estimate, so a search that goes by it is exact only by luck, and then does not say so.

    Args:
        work_us: Estimated work per node, in microseconds on some machine.
        kinds: Kind of work per node, in words.
        hope: What is not known is hoped to take this share of what is known.

    Examples:
        >>> estimates = FittedEstimates([10.0, 10.0, 10.0], ["conv", "conv", "exp"])
        >>> estimates = estimates.learning("a", 0b001, 20.0, alone=True)
        >>> estimates.expected_us(SearchCandidate(nodes=0b010, target="a", key=""))
        20.0
        >>> estimates.expected_us(SearchCandidate(nodes=0b010, target="b", key=""))  # never seen
        18.0
        >>> estimates = estimates.learning("a", 0b011, 30.0, alone=False)  # joining saves a quarter
        >>> estimates.expected_us(SearchCandidate(nodes=0b011, target="a", key=""))
        30.0
    """

    def __init__(self, work_us: Sequence[float], kinds: Sequence[str], *, hope: float = 0.9) -> None:
        if len(work_us) != len(kinds):
            raise ValueError("every node has work and a kind")
        self._work = tuple(work_us)
        self._kinds = tuple(kinds)
        self._hope = hope
        self._alone: dict[tuple[str, str], tuple[float, float]] = {}  # cost and work by target and kind
        self._joined: dict[str, list[tuple[dict[str, float], float]]] = {}  # work by kind, and cost
        self._factors: dict[str, float] = {}
        self._profiles: dict[int, dict[str, float]] = {}

    def learning(self, target: str, nodes: int, cost_us: float, *, alone: bool) -> FittedEstimates:
        """Return the estimates after one more measurement.

        Args:
            target: Who ran it.
            nodes: What was run.
            cost_us: How long it took, in microseconds.
            alone: Whether it counts as one operator. It stands for the kind that is most of its work.
        """
        return self.learning_all([(target, nodes, cost_us, alone)])

    def learning_all(self, measurements: Iterable[tuple[str, int, float, bool]]) -> FittedEstimates:
        """Return the estimates after more measurements, each what `learning` takes."""
        after = copy.copy(self)
        after._factors = {}
        after._alone = dict(self._alone)
        after._joined = {name: list(known) for name, known in self._joined.items()}
        for target, nodes, cost_us, alone in measurements:
            profile = self.profile(nodes)
            if profile and alone:
                key = target, self.kind_of(nodes)
                cost, work = after._alone.get(key, (0.0, 0.0))
                after._alone[key] = cost + cost_us, work + sum(profile.values())
            elif profile:
                after._joined.setdefault(target, []).append((profile, cost_us))
        return after

    def profile(self, nodes: int) -> dict[str, float]:
        """Return the work of these nodes by kind, in microseconds; kinds without work are left out."""
        known = self._profiles.get(nodes)
        if known is None:
            known = {}
            for node in bits(nodes):
                if self._work[node]:
                    known[self._kinds[node]] = known.get(self._kinds[node], 0.0) + self._work[node]
            self._profiles[nodes] = known
        return known

    def kind_of(self, nodes: int) -> str:
        """Return the kind with most of the work of these nodes; empty if they have no work."""
        profile = self.profile(nodes)
        return max(profile, key=lambda kind: (profile[kind], kind), default="")

    def is_known(self, target: str, kind: str) -> bool:
        """Return whether a kind of work was measured on a target."""
        return (target, kind) in self._alone

    def known_us(self, target: str, nodes: int) -> float:
        """Sum the estimated cost of these nodes, one by one, over the kinds known on a target."""
        profile = self.profile(nodes)
        return sum(self._ratio(target, kind) * profile[kind] for kind in profile if self.is_known(target, kind))

    def expected_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        total = self._sum(candidate.target, self.profile(candidate.nodes))
        return total * self._factor(candidate.target) if candidate.nodes.bit_count() > 1 else total

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`; what was learnt proves nothing."""
        return 0.0

    def _sum(self, target: str, profile: dict[str, float]) -> float:
        return sum(self._ratio(target, kind) * work for kind, work in profile.items())

    def _ratio(self, target: str, kind: str) -> float:
        known = self._alone.get((target, kind))
        if known is not None:
            return known[0] / known[1]
        elsewhere = [cost / work for (_, other), (cost, work) in self._alone.items() if other == kind]
        usual = [cost / sum(profile.values()) for each in self._joined.values() for profile, cost in each]
        return self._hope * min(elsewhere or usual, default=0.0)

    def _factor(self, target: str) -> float:
        """Estimate the ratio of the cost of several nodes in one kernel to the sum of their separate costs."""
        if target not in self._factors:
            seen = [
                cost / self._sum(target, profile)
                for profile, cost in self._joined.get(target, ())
                if sum(work for kind, work in profile.items() if self.is_known(target, kind))
                >= _MOSTLY * sum(profile.values())
            ]
            # what several nodes take beyond the sum is some unknown kind's, not the joining's
            self._factors[target] = min(1.0, statistics.median(seen)) if seen else self._hope
        return self._factors[target]
