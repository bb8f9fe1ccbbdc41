"""Decide which plan is kept: the incumbent, unless a mixed plan is significantly faster.

Pure functions of recorded samples, so that the same database gives the same outcome.
"""

from __future__ import annotations

import dataclasses
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence

from collage.control.tie_breaking import NEAR, TieBreaking
from collage.measure.statistics import Interval, percentile, ratio_interval
from collage.store import usual_factor

DISPLACE_BELOW = 0.99
"""Median ratio below which a mixed plan displaces the incumbent: less is not worth another dependency."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A contender with its end-to-end samples.

    Attributes:
        name: Unique name.
        single: Whether one toolchain runs it: an incumbent, not a challenger.
        kernels: Number of kernels.
        toolchains: Number of toolchains.
        rounds_us: Samples of each interleaved round, in microseconds; round `i` of all contenders ran together. A
            contender that was significantly slower left early and has fewer rounds.
        targets: Names of the targets it uses.
        called_us: Samples of runs as users call them, likewise; empty if there are none.
        calibrations_us: Time of the calibration kernel beside each round; empty if it did not run, or if the plan
            uses a device.
        parts_us: Time of each call site in its place, in each of the first rounds; empty if it is not known.
        first_round: Number of its first round; above 0 if it joined a race in which others had run.
        percent: Which percentile of a round's samples counts; the median by default.
    """

    name: str
    single: bool
    kernels: int
    toolchains: int
    rounds_us: tuple[tuple[float, ...], ...]
    targets: tuple[str, ...] = ()
    called_us: tuple[tuple[float, ...], ...] = ()
    calibrations_us: tuple[float, ...] = ()
    parts_us: tuple[Mapping[str, float], ...] = ()
    first_round: int = 0
    percent: float = 50.0

    @property
    def end(self) -> int:
        """Number of the round after its last."""
        return self.first_round + len(self.rounds_us)

    @property
    def round_times_us(self) -> tuple[float, ...]:
        """What counts of each round: the median of its samples, or another percentile."""
        return tuple(percentile(samples, self.percent) for samples in self.rounds_us)

    @property
    def time_us(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.round_times_us)

    def usual_us(self, usual_calibration_us: float | None) -> float:
        """Return the time at the machine's usual speed, as kernels' costs are, to compare it with their sum.

        Args:
            usual_calibration_us: What the calibration kernel usually takes; None if it never ran.
        """
        if usual_calibration_us is None or not self.calibrations_us:
            return self.time_us
        return self._at_usual_speed(self.round_times_us, usual_calibration_us)

    def in_place_us(self, usual_calibration_us: float | None) -> dict[str, float]:
        """Return what each call site takes in its place, at the machine's usual speed; empty if it is not known.

        Args:
            usual_calibration_us: As for `usual_us`.
        """
        if usual_calibration_us is None or not self.calibrations_us or not self.parts_us:
            return {}
        return {
            site: self._at_usual_speed([part[site] for part in self.parts_us], usual_calibration_us)
            for site in self.parts_us[0]
        }

    def _at_usual_speed(self, times_us: Sequence[float], usual_calibration_us: float) -> float:
        """Return the median of times at the machine's usual speed, in microseconds.

        A race lasts a minute, in which the machine's speed changes. So each round counts relative to the calibration
        kernel beside it, and their median is normalised as costs are.

        Args:
            times_us: Time of each round, from the first one on; later rounds may be missing.
            usual_calibration_us: As for `usual_us`, but known.
        """
        relative: float = statistics.median(map(operator.truediv, times_us, self.calibrations_us))
        here_us = relative * statistics.median(self.calibrations_us)
        return here_us * usual_factor(usual_calibration_us, self.calibrations_us)

    def then(self, later: Timed) -> Timed:
        """Return the same contender with the rounds that it ran later, too.

        Raises:
            ValueError: If there are rounds between.
        """
        if later.first_round != self.end:
            raise ValueError(f"{self.name} ended before round {self.end}, and went on with {later.first_round}")
        both = self.called_us and later.called_us
        return dataclasses.replace(
            self,
            rounds_us=self.rounds_us + later.rounds_us,
            called_us=self.called_us + later.called_us if both else (),
            calibrations_us=self.calibrations_us + later.calibrations_us,
            parts_us=self.parts_us or later.parts_us,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The kept plan and the reason.

    Attributes:
        winner: Name of the plan to keep.
        incumbent: Name of the best single-toolchain plan.
        ratios: Ratio of each contender's latency to the incumbent's.
        reason: Reason for the decision, in one sentence.
        incumbent_as_called: Name of the single-toolchain plan that is fastest as users call it; or empty.
        called: Ratio of each contender's latency as users call it to that plan's.
    """

    winner: str
    incumbent: str
    ratios: Mapping[str, Interval]
    reason: str
    incumbent_as_called: str = ""
    called: Mapping[str, Interval] = dataclasses.field(default_factory=dict)


def decide(
    contenders: Sequence[Timed], seed: int, *, failed: Sequence[str] = (), tie_breaking: TieBreaking | None = None
) -> Decision:
    """Select the fastest single-toolchain plan unless a mixed plan displaces it.

    A mixed plan displaces the incumbent only if the 95 % interval of their ratio lies below 1 and the ratio itself
    below `DISPLACE_BELOW`, and if the interval of runs as users call them lies below 1, too: those are compared with
    the single-toolchain plan that is fastest so. Nor is it slower than the fastest single toolchain where another one
    is preferred. Of each kind, only the plans that ran the last round are considered, and no mixed plan that left
    before the incumbent: the others left because further rounds would not have mattered (`Staying`). Ties fall to
    fewer kernels, then fewer toolchains, then the name.

    Among single-toolchain plans that are statistically indistinguishable, and among mixed plans that would each
    displace them, the preferred one is taken, and the reason says so. Plans are indistinguishable from the fastest
    if their ratio to it is at most 1 + `NEAR` and its 95 % interval reaches down to 1.

    Args:
        contenders: At least one.
        seed: Seed of the bootstrap.
        failed: Names of mixed plans that could not be built or run; used for the reason only.
        tie_breaking: Targets to prefer where measurements cannot decide; no preference if None.

    Raises:
        ValueError: If there is no contender.
    """
    if not contenders:
        raise ValueError("nothing to decide between")
    stayed = _last([c for c in contenders if c.single]) + _last([c for c in contenders if not c.single])
    prefer = tie_breaking or TieBreaking()
    incumbent, settled = _preferred([c for c in stayed if c.single == stayed[0].single], prefer, seed)
    ratios = {c.name: _ratio(c, incumbent, seed) for c in contenders}
    best, called = _as_called(contenders, [c for c in stayed if c.single], seed)
    mixed = [c for c in stayed if not c.single and c is not incumbent]
    challengers = sorted(mixed, key=lambda c: _ratio(c, mixed[0], seed).value)  # the incumbent may have left early
    faster = [
        c
        for c in challengers
        if ratios[c.name].high < 1.0
        and ratios[c.name].value < DISPLACE_BELOW
        and c.end >= incumbent.end  # it did not leave because it would not be kept
        and _ran_together(c, incumbent)
        and _ratio(c, stayed[0], seed).value <= 1.0  # which may not be the incumbent
    ]
    displacing = [c for c in faster if c.name not in called or called[c.name].high < 1.0]
    if displacing:
        challenger, why = _preferred(displacing, prefer, seed)
        ratio = ratios[challenger.name]
        return Decision(
            winner=challenger.name,
            incumbent=incumbent.name,
            ratios=ratios,
            reason=(
                f"the mixed plan takes {ratio.value:.3f} of the time of {incumbent.name}, the best single "
                f"toolchain (95 % interval {ratio.low:.3f} to {ratio.high:.3f}){settled}{why}"
            ),
            incumbent_as_called=best,
            called=called,
        )
    return Decision(
        winner=incumbent.name,
        incumbent=incumbent.name,
        ratios=ratios,
        reason=(_slower_as_called(faster[0], best, called) if faster else _kept(incumbent, challengers, ratios, failed))
        + settled,
        incumbent_as_called=best,
        called=called,
    )


def _as_called(contenders: Sequence[Timed], singles: Sequence[Timed], seed: int) -> tuple[str, dict[str, Interval]]:
    """Return the single-toolchain plan that is fastest as users call it, and every contender's ratio to it."""
    timed = [c for c in singles if c.called_us]
    if not timed:
        return "", {}
    best = min(timed, key=lambda c: (_middle(c.called_us, c.percent), c.name))
    return best.name, {c.name: _interval(c, best, seed, lambda each: each.called_us) for c in contenders if c.called_us}


def _slower_as_called(faster: Timed, best: str, called: Mapping[str, Interval]) -> str:
    ratio = called[faster.name]
    return (
        f"{best} alone is kept: {faster.name} is faster only when its memory is bound; as users call it, it takes "
        f"{ratio.value:.3f} of the time of {best} (95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
    )


def _preferred(order: Sequence[Timed], tie_breaking: TieBreaking, seed: int) -> tuple[Timed, str]:
    """Return the most preferred contender indistinguishable from the first, and why if it is not the first."""
    fastest = order[0]
    ratios = {c.name: _ratio(c, fastest, seed) for c in order}
    near = [c for c in order if ratios[c.name].low <= 1.0 and ratios[c.name].value <= 1 + NEAR]
    best = min(near or [fastest], key=lambda c: tie_breaking.rank(c.targets))
    if best is fastest:
        return fastest, ""
    ratio = ratios[best.name]
    return best, (
        f"; {fastest.name} and {best.name} cannot be told apart (ratio {ratio.value:.3f}, 95 % interval "
        f"{ratio.low:.3f} to {ratio.high:.3f}), so --prefer decided for {best.name}"
    )


def _last(contenders: Sequence[Timed]) -> list[Timed]:
    """Return the contenders that ran to the last round, the fastest first, in the rounds that all of them ran."""
    end = max((c.end for c in contenders), default=0)
    last = [c for c in contenders if c.end == end]
    since = max((c.first_round for c in last), default=0)
    middle = {c.name: statistics.median(c.round_times_us[since - c.first_round :]) for c in last}
    return sorted(last, key=lambda c: (middle[c.name], c.kernels, c.toolchains, c.name))


def _ratio(contender: Timed, incumbent: Timed, seed: int) -> Interval:
    """Compute the interval of the ratio over the rounds in which both contenders ran.

    If one left before the other joined, as may be once the plan that ran all rounds turned out wrong, over their rounds
    that are nearest in time. The machine may have changed between, so nothing is decided by that.
    """
    return _interval(contender, incumbent, seed, lambda c: c.rounds_us)


def _ran_together(one: Timed, other: Timed) -> bool:
    return max(one.first_round, other.first_round) < min(one.end, other.end)


def _interval(one: Timed, other: Timed, seed: int, rounds: Callable[[Timed], Sequence[Sequence[float]]]) -> Interval:
    first, end = max(one.first_round, other.first_round), min(one.end, other.end)
    if _ran_together(one, other):
        shared = [rounds(c)[first - c.first_round : end - c.first_round] for c in (one, other)]
        return ratio_interval(*shared, seed=seed, percent=one.percent)
    count = min(len(rounds(one)), len(rounds(other)))
    nearest = [rounds(c)[-count:] if c.end <= first else rounds(c)[:count] for c in (one, other)]
    return ratio_interval(*nearest, seed=seed, percent=one.percent)


def _middle(rounds: Sequence[Sequence[float]], percent: float) -> float:
    return statistics.median(percentile(samples, percent) for samples in rounds)


def _kept(incumbent: Timed, challengers: Sequence[Timed], ratios: Mapping[str, Interval], failed: Sequence[str]) -> str:
    if not incumbent.single:
        return f"no single toolchain runs the whole model, so {incumbent.name} is kept without a comparison"
    kept = f"{_named(incumbent)} is kept"
    if not challengers and failed:
        return f"{kept}: {' and '.join(failed)} could not be built or run"
    if not challengers:
        return f"{kept}: the search found no mixed plan worth timing"
    if not _ran_together(challengers[0], incumbent):
        return f"{kept}: the best mixed plan was not timed beside it"
    ratio = ratios[challengers[0].name]
    verdict = "slower" if ratio.value >= 1 else "not faster beyond doubt"
    return (
        f"{kept}: the best mixed plan is {verdict}, at {ratio.value:.3f} of its time "
        f"(95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
    )


def _named(incumbent: Timed) -> str:
    """Return what to call the plan of one toolchain: others have nodes of it only where they are pinned to them."""
    return f"{incumbent.name} alone" if incumbent.toolchains == 1 else f"{incumbent.name} with what is pinned to others"
