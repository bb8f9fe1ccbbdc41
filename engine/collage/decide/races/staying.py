"""Who runs another heat of a race: nobody of whom further rounds would not matter.

A mixed plan matters while it may still be kept, which takes an interval below 1. Its chance is the predictive power of
D. J. Spiegelhalter, L. S. Freedman and P. R. Blackburn, "Monitoring clinical trials: conditional or predictive power?"
(Controlled Clinical Trials 7, 1986): the probability, given the rounds so far, that the rounds that are left make the
difference significant. Of single toolchains the fastest alone matters, so one matters while it may be that.

Chances say nothing of how much is at stake: two toolchains that take equally long may each be the fastest for as long
as anybody looks. So a contender leaves, too, of which the rounds that are left are expected to save less than `WORTH`,
or `ORDER_WORTH` where only the order of plans of one kind is open. That is the expected value of information of
S. E. Chick and K. Inoue, "New two-stage and sequential procedures for selecting the best simulated system" (Operations
Research 49(5), 2001).

Of mixed plans that cannot be told apart that of the fewest kernels is kept. So where only their order is open, others
count as if they took `ALIKE` more.

Stopping for futility errs on one side only: what leaves is not kept, so nothing is kept on less evidence, but for a
mixed plan that is faster by far.

Within the first heat already a contender leaves that is slower by far, and single toolchains but the fastest if a mixed
plan is faster than all by far. After a heat the single toolchains leave if every mixed plan that stays is faster by
far: only which of these is the fastest is open then. If there is one only, the race is over.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from collage.decide.decision import DISPLACE_BELOW
from collage.measure.contenders.interleaved import Rounds
from collage.measure.statistics import Interval, percentile, ratio_interval
from collage_core.candidates.simple_plan import ALIKE

FUTILE: Final = 0.05
"""Chance of being kept, or of being the fastest, below which a contender leaves."""
WORTH: Final = 0.005
"""Share of a plan's time that the rounds that are left have to be expected to save."""
ORDER_WORTH: Final = 0.007
"""The same of rounds that only tell which single toolchain is the fastest, or which of several mixed plans that are all
better. Processes differ by `_PROCESS`, so a second heat of two that seem equally fast is worth 0.8 % where many rounds
are left, and a third 0.5 %.
"""
_PROCESS: Final = 0.02
"""Standard deviation of the ratio of two identical processes, over their whole lives; each heat starts new ones."""
_CLOSE: Final = 0.02
"""Half-width of a ratio's interval below which a comparison is settled, on whichever side of 1 it lies."""
FAR_SLOWER: Final = 1.25
"""A contender that takes so many times as long as the fastest in each of the first `LOOKED_AT` rounds leaves at once.
Identical processes differ by `_PROCESS`; in the replay of `benchmarks/race_rules.py` the expected loss changes by at
most 0.02 %.
"""
LOOKED_AT: Final = 2
"""Rounds of the first heat after which contenders may leave."""
_LEAST_DEGREES: Final = 3
"""Fewest degrees of freedom with which Student's t has a finite variance."""
_NORMAL: Final = statistics.NormalDist()
_BEYOND_DOUBT: Final = _NORMAL.inv_cdf(0.975)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Staying:
    """The rule of who runs another heat.

    Attributes:
        singles: Most single toolchains that run more than the first heat; all that may be the fastest if None.
        futile: Chance below which a contender leaves.
        worth: Expected saving, as a share of a plan's time, below which it leaves.
        order_worth: The same among single toolchains, and among mixed plans once only their order is open.
        far_slower: Ratio in each of the first rounds at which a contender leaves within the first heat.
        far_behind: Single toolchains leave after a heat if the ratios of their times to those of the mixed plans that
            stay are unlikely to end below this.
        percent: Which percentile of a round's samples counts.
        alike: Share of its time by which a mixed plan of more kernels counts as slower than those of the fewest, where
            only the order of mixed plans is open.
    """

    singles: int | None = None
    futile: float = FUTILE
    worth: float = WORTH
    order_worth: float = ORDER_WORTH
    far_slower: float = FAR_SLOWER
    far_behind: float = FAR_SLOWER
    percent: float = 50.0
    alike: float = ALIKE

    def __call__(
        self,
        ran: Mapping[str, Rounds],
        called: Mapping[str, Rounds],
        incumbents: Collection[str],
        *,
        kernels: Mapping[str, int] | None = None,
        heats: int,
        end: int,
    ) -> list[str]:
        """Return who runs another heat; nobody if nothing is open.

        Args:
            ran: Samples by round of each contender that ran the last heat, of the same rounds.
            called: The same of runs as users call them; nothing of contenders that have no such call.
            incumbents: Names of the single toolchains.
            kernels: How many kernels mixed plans have; None if that decides nothing.
            heats: Heats so far, at least one.
            end: Rounds after which the race ends, as far as is known.
        """
        ways = _ways(ran, called)
        singles = [name for name in ran if name in incumbents]
        mixes = [name for name in ran if name not in incumbents]
        if singles:
            mixes = [name for name in mixes if self._may_be_kept(name, singles, ways, heats, end)]
        # `decide` compares mixed plans by their bound calls
        mixes = self._fastest(mixes, ways[:1], heats, end, self.worth)
        singles = self._fastest(singles, ways, heats, end, self.order_worth)[: self.singles]
        behind = mixes and all(
            self._stays_far_behind(a, m, way, heats, end) for a in singles for m in mixes for way in ways
        )
        if behind or not singles:
            singles = []
            mixes = self._fastest(mixes, ways[:1], heats, end, self.order_worth, kernels)
        likely = {*mixes, *singles}
        staying = [name for name in ran if name in likely]
        if len(staying) < 2 or (heats > 1 and all(is_settled(way, staying, self.percent) for way in ways)):
            return []
        return staying

    def leaving(self, ran: Mapping[str, Rounds], called: Mapping[str, Rounds], incumbents: Collection[str]) -> set[str]:
        """Return who leaves within the first heat: who is slower by far in every round and in each way of calling.

        A single toolchain is compared with single toolchains only: mixed plans have to beat the fastest of them. But if
        a mixed plan is faster than all of them by far, it is enough to know by how much: only the fastest stays, in
        each way of calling.

        Args:
            ran: Samples by round of each contender, all of the same rounds; nobody leaves but after `LOOKED_AT`.
            called: As in a call.
            incumbents: Names of the single toolchains.
        """
        if not ran or {len(rounds) for rounds in ran.values()} != {LOOKED_AT}:
            return set()
        ways = _ways(ran, called)
        singles = [name for name in ran if name in incumbents]
        mixes = [name for name in ran if name not in incumbents]
        far = {
            name
            for name in ran
            if all(
                self._is_far_slower(way, name, fastest(way, singles if name in singles else list(ran), self.percent))
                for way in ways
            )
        }
        best = {fastest(way, singles, self.percent) for way in ways} if singles else set()
        for mix in mixes:
            if all(self._is_far_slower(way, single, mix) for way in ways for single in singles):
                return far.union(singles).difference(best)
        return far

    def _is_far_slower(self, way: Mapping[str, Rounds], name: str, other: str) -> bool:
        """Return whether a contender took longer than another by far in each round."""
        both = zip(way[name], way[other], strict=True)
        return all(
            percentile(own, self.percent) >= self.far_slower * percentile(than, self.percent) for own, than in both
        )

    def _stays_far_behind(self, single: str, mix: str, way: Mapping[str, Rounds], heats: int, end: int) -> bool:
        """Return whether a single toolchain is unlikely to end below `far_behind` times the time of a mixed plan."""
        return self._outlook(way, single, mix, heats, end).chance(math.log(self.far_behind)) < self.futile

    def _fastest(
        self,
        names: Sequence[str],
        ways: Sequence[Mapping[str, Rounds]],
        heats: int,
        end: int,
        worth: float,
        kernels: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Return those of a kind that may be the fastest of it, the likeliest first."""
        fewest = min((kernels[name] for name in names), default=0) if kernels else 0
        more = {name: math.log1p(self.alike) if kernels and kernels[name] > fewest else 0.0 for name in names}
        chances: dict[str, float] = {}
        for way in ways:
            best = fastest(way, names, self.percent, more) if names else ""
            for name in names:
                outlook = None if name == best else self._outlook(way, name, best, heats, end)
                chance = 1.0
                if outlook is not None:
                    outlook = dataclasses.replace(outlook, mean=outlook.mean + more[name] - more[best])
                    chance = self._worthwhile(outlook, 0.0, worth)
                chances[name] = max(chances.get(name, 0.0), chance)
        return sorted((name for name in names if chances[name] > 0), key=lambda name: -chances[name])

    def _may_be_kept(
        self, name: str, singles: Sequence[str], ways: Sequence[Mapping[str, Rounds]], heats: int, end: int
    ) -> bool:
        """Return whether a mixed plan may be faster than the fastest single toolchain, in both ways, beyond doubt."""
        outlooks = (self._outlook(way, name, fastest(way, singles, self.percent), heats, end) for way in ways)
        limit = math.log(DISPLACE_BELOW)
        return all(self._worthwhile(each, min(limit, each.significant), self.worth) > 0 for each in outlooks)

    def _outlook(self, way: Mapping[str, Rounds], name: str, to: str, heats: int, end: int) -> Outlook:
        return Outlook.of(ratio_of(way, name, to, self.percent), len(way[name]), heats=heats, end=end)

    def _worthwhile(self, outlook: Outlook, limit: float, worth: float) -> float:
        """Return the chance that a ratio's logarithm is below a limit in the end; 0 if that is not worth the rounds."""
        chance = outlook.chance(limit)
        return chance if chance >= self.futile and outlook.saving(limit) >= worth else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """What the logarithm of a ratio will be in the end: a normal distribution.

    Attributes:
        mean: Its mean.
        deviation: Its standard deviation.
        significant: Below this its 95 % interval will be below 0.
    """

    mean: float
    deviation: float
    significant: float

    @classmethod
    def of(cls, ratio: Interval, rounds: int, *, heats: int, end: int) -> Outlook:
        """Return what the rounds so far say, with the deviation of Student's t: few say little of how much they vary.

        Where the interval reaches farther down than up, the lower side counts.

        Args:
            ratio: The ratio by these.
            rounds: How many they are.
            heats: Heats so far.
            end: Rounds in the end.
        """
        so_far = rounds / max(end, rounds)
        noise = (math.log(ratio.high) - math.log(ratio.low)) / (2 * _BEYOND_DOUBT)
        below = max(noise, (math.log(ratio.value) - math.log(ratio.low)) / _BEYOND_DOUBT)
        degrees = max(rounds - 1, _LEAST_DEGREES)
        spread = below * math.sqrt(degrees / (degrees - 2))
        deviation = math.hypot(spread, _PROCESS / math.sqrt(heats)) * math.sqrt(1 - so_far)
        return cls(math.log(ratio.value), max(deviation, 1e-9), -_BEYOND_DOUBT * noise * math.sqrt(so_far))

    def chance(self, limit: float) -> float:
        """Return the probability that it is below a limit."""
        return _NORMAL.cdf((limit - self.mean) / self.deviation)

    def saving(self, limit: float) -> float:
        """Return by how much it is expected to be below 0 where it is below a limit, times the probability of that."""
        at = (limit - self.mean) / self.deviation
        return self.deviation * _NORMAL.pdf(at) - self.mean * _NORMAL.cdf(at)


def _ways(ran: Mapping[str, Rounds], called: Mapping[str, Rounds]) -> list[Mapping[str, Rounds]]:
    """Return the samples in each way of calling that all contenders have."""
    return [ran] if any(name not in called for name in ran) else [ran, {name: called[name] for name in ran}]


def is_settled(way: Mapping[str, Rounds], names: Sequence[str], percent: float = 50.0) -> bool:
    """Return whether each contender is either known to be slower than the fastest or known to be close to it."""
    best = fastest(way, names, percent)
    ratios = [ratio_of(way, name, best, percent) for name in names if name != best]
    return all(ratio.low > 1 or ratio.high - ratio.low <= 2 * _CLOSE for ratio in ratios)


def fastest(
    way: Mapping[str, Rounds], names: Sequence[str], percent: float = 50.0, more: Mapping[str, float] | None = None
) -> str:
    """Return the contender with the smallest median over rounds of what counts of each.

    Args:
        way: Samples by round of each.
        names: The contenders.
        percent: Which percentile of a round's samples counts.
        more: By how much the logarithm of what each takes counts as larger; by nothing if None.
    """
    middle = {name: statistics.median(percentile(each, percent) for each in way[name]) for name in names}
    middle = {name: each * math.exp(more[name]) for name, each in middle.items()} if more else middle
    return min(middle, key=lambda name: (middle[name], name))


def ratio_of(way: Mapping[str, Rounds], name: str, to: str, percent: float) -> Interval:
    """Return the ratio of one contender's times to another's."""
    return ratio_interval(way[name], way[to], seed=0, percent=percent)
