"""What contenders of a race took, and the ratios of that."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence

from collage.measure.statistics import Interval, percentile, ratio_interval
from collage.store import usual_factor

_Rounds = Sequence[Sequence[float]]


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


@dataclasses.dataclass(frozen=True, slots=True)
class Ratios:
    """Compares contenders over the rounds in which they ran together.

    If one left before the other joined, each is compared with a third that ran beside both, or in more such steps. The
    logarithms of these ratios add, and so do their variances: H. C. Bucher, G. H. Guyatt, L. E. Griffith and
    S. D. Walter, "The results of direct and indirect treatment comparisons in meta-analysis of randomized controlled
    trials" (Journal of Clinical Epidemiology 50, 1997).

    If there are no such steps, they are compared over the rounds of each that are nearest in time. The machine may have
    changed between, so nothing is to be decided by that.

    Attributes:
        contenders: All of them.
        seed: Seed of the bootstrap.
    """

    contenders: Sequence[Timed]
    seed: int

    def __call__(self, one: Timed, other: Timed) -> Interval:
        """Return the ratio of what one contender takes to what another does."""
        return self._interval(one, other, lambda c: c.rounds_us)

    def as_called(self, one: Timed, other: Timed) -> Interval:
        """Return the same of runs as users call them; both have such."""
        return self._interval(one, other, lambda c: c.called_us)

    def are_comparable(self, one: Timed, other: Timed) -> bool:
        """Return whether they ran together, or there are steps from one to the other."""
        return bool(_steps(one, other, self.contenders))

    def _interval(self, one: Timed, other: Timed, rounds: Callable[[Timed], _Rounds]) -> Interval:
        steps = _steps(one, other, [c for c in self.contenders if rounds(c)])
        shared = [_shared(*step, rounds) for step in steps] or [_nearest(one, other, rounds)]
        return _product([ratio_interval(*each, seed=self.seed, percent=one.percent) for each in shared])


def _steps(one: Timed, other: Timed, contenders: Sequence[Timed]) -> list[tuple[Timed, Timed]]:
    """Return as few pairs as possible that ran together and lead from one contender to another; none if none do."""
    if _together(one, other):
        return [(one, other)]
    reached, paths = [one], {one.name: [one]}
    for last in reached:
        for c in sorted(contenders, key=lambda c: (-_together(last, c), c.name)):
            if c.name not in paths and _together(last, c):
                paths[c.name] = [*paths[last.name], c]
                reached.append(c)
    return list(itertools.pairwise(paths.get(other.name, ())))


def _together(one: Timed, other: Timed) -> int:
    """Return the number of rounds in which both ran."""
    return max(0, min(one.end, other.end) - max(one.first_round, other.first_round))


def _shared(one: Timed, other: Timed, rounds: Callable[[Timed], _Rounds]) -> list[_Rounds]:
    """Return the samples of the rounds in which both ran."""
    first, end = max(one.first_round, other.first_round), min(one.end, other.end)
    return [rounds(c)[first - c.first_round : end - c.first_round] for c in (one, other)]


def _nearest(one: Timed, other: Timed, rounds: Callable[[Timed], _Rounds]) -> list[_Rounds]:
    """Return as many samples of each of two that did not run together: those that are nearest in time."""
    count = min(len(rounds(one)), len(rounds(other)))
    since = max(one.first_round, other.first_round)
    return [rounds(c)[-count:] if c.end <= since else rounds(c)[:count] for c in (one, other)]


def _product(ratios: Sequence[Interval]) -> Interval:
    """Return the product of ratios that were measured independently of each other."""
    if len(ratios) == 1:
        return ratios[0]
    value = math.prod(ratio.value for ratio in ratios)
    # of a few rounds even the median may be outside of the interval
    below = math.hypot(*(max(0.0, math.log(ratio.value / ratio.low)) for ratio in ratios))
    above = math.hypot(*(max(0.0, math.log(ratio.high / ratio.value)) for ratio in ratios))
    return Interval(value, value * math.exp(-below), value * math.exp(above))
