"""Find the fastest of several whole plans in as few rounds as possible.

A race, as in O. Maron and A. W. Moore, "Hoeffding Races" (NIPS 1993), with this project's paired ratio instead of
Hoeffding's bound: contenders that are significantly slower leave, the others continue. Rounds are grouped into heats.
Each heat starts new processes, because a process may be slower than an identical one for its whole lifetime.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Collection, Mapping

from collage.measure.contenders.interleaved import Contender, Rounds, interleaved
from collage.measure.statistics import Interval, ratio_interval
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed
from collage.report.progress import Progress

FIRST_ROUNDS = 6
"""Rounds of the first heat."""
HEAT_ROUNDS = 12
"""Rounds of each later heat."""
_HOPELESS = 1.3
"""Ratio to the fastest beyond which a significantly slower contender leaves after the first heat.

After later heats any significantly slower contender leaves. The first rounds are too few to resolve a few per cent.
"""
_CLOSE = 0.02
"""Half-width of a ratio's interval below which a comparison is settled, on whichever side of 1 it lies."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """Result of a race.

    Attributes:
        rounds: Samples by name, by round. Round `i` of all contenders ran together; those that left early have fewer.
        called: The same of runs as users call them; nothing of contenders that have no such call.
        calibrations_us: Time of the calibration kernel beside each round, by name.
        parts_us: Median time of each step in its place, in each round of the first heat, by name of the contender and
            of the step; nothing of contenders without steps.
        failed: Reason for each contender without samples, by name.
    """

    rounds: Mapping[str, Rounds]
    called: Mapping[str, Rounds]
    calibrations_us: Mapping[str, tuple[float, ...]]
    parts_us: Mapping[str, tuple[Mapping[str, float], ...]]
    failed: Mapping[str, str]


def race(
    contenders: Mapping[str, Contender],
    incumbents: Collection[str],
    *,
    rounds: int,
    round_s: float,
    limit_s: float,
    threads: int,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> Raced:
    """Run heats until the fastest contender is known or the limit on rounds or time is reached.

    The fastest incumbent always stays in the race: every other contender is compared with it.

    Args:
        contenders: Contenders by name.
        incumbents: Names of the incumbents; the fastest of them stays.
        rounds: Maximum number of rounds in total.
        round_s: Seconds each contender runs in a round.
        limit_s: Seconds after which no heat begins, except the second.
        threads: Threads of the calibration kernel.
        progress: Receives progress updates.
        clock: Monotonic clock, in seconds.
    """
    began = clock()
    samples: dict[str, Rounds] = {}
    called: dict[str, Rounds] = {}
    calibrations_us: dict[str, tuple[float, ...]] = {}
    parts_us: dict[str, tuple[Mapping[str, float], ...]] = {}

    def noted(name: str, burst: Burst) -> None:
        calibrations_us[name] = (*calibrations_us.get(name, ()), burst.calibration_us)
        if burst.called_us:
            called[name] = (*called.get(name, ()), burst.called_us)
        if burst.parts_us:
            parts_us[name] = (*parts_us.get(name, ()), burst.parts_us)

    failed: dict[str, str] = {}
    running = list(contenders)
    done = 0
    while running:
        heat = min(HEAT_ROUNDS if done else FIRST_ROUNDS, rounds - done)
        progress.phase("timing whole plans" if done else "timing whole plans, first rounds", heat * len(running))
        answers = interleaved(
            [contenders[name] for name in running],
            rounds=heat,
            burst_s=round_s,
            first_round=done,
            as_called=True,
            in_parts=done == 0,
            calibration_threads=threads,
            progress=lambda *_: progress.advance(),
            on_burst=noted,
        )
        for name, answer in answers.items():
            if isinstance(answer, Failed):
                failed[name] = answer.reason
                for rounds_of in (samples, called, calibrations_us, parts_us):
                    rounds_of.pop(name, None)
            else:
                samples[name] = samples.get(name, ()) + answer
        first, done = done == 0, done + heat
        ran = {name: samples[name] for name in running if name in samples}
        running = _staying(ran, incumbents, _HOPELESS if first else 1.0)
        settled = all(_is_settled({name: way[name] for name in running if name in way}) for way in (ran, called))
        if done >= rounds or (not first and (settled or clock() - began > limit_s)):
            break
    return Raced(rounds=samples, called=called, calibrations_us=calibrations_us, parts_us=parts_us, failed=failed)


def _staying(ran: Mapping[str, Rounds], incumbents: Collection[str], slower: float) -> list[str]:
    """Return the names of the contenders that run another heat."""
    best = {_fastest(group) for group in (ran, {name: ran[name] for name in ran if name in incumbents}) if group}
    return [name for name in ran if name in best or _ratio(ran, name, _fastest(ran)).low <= slower]


def _is_settled(ran: Mapping[str, Rounds]) -> bool:
    """Return whether each contender is either known to be slower than the fastest or known to be close to it."""
    ratios = [_ratio(ran, name, _fastest(ran)) for name in ran if name != _fastest(ran)]
    return all(ratio.low > 1 or ratio.high - ratio.low <= 2 * _CLOSE for ratio in ratios)


def _fastest(ran: Mapping[str, Rounds]) -> str:
    middle = {name: statistics.median(statistics.median(each) for each in answer) for name, answer in ran.items()}
    return min(middle, key=lambda name: (middle[name], name))


def _ratio(ran: Mapping[str, Rounds], name: str, to: str) -> Interval:
    return ratio_interval(ran[name], ran[to], seed=0)
