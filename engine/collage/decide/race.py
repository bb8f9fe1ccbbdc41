"""Which of several whole plans is the fastest, in as few rounds as that takes.

A race, as in O. Maron and A. W. Moore, "Hoeffding Races" (NIPS 1993), with the paired ratio of this project instead of
Hoeffding's bound: contenders that are slower beyond doubt leave, the others go on. Rounds come in heats; each heat
has new processes, because a process may be slower than its twin for as long as it lives.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Collection, Mapping

from collage.measure.contenders.interleaved import Contender, Rounds, interleaved
from collage.measure.statistics import Interval, ratio_interval
from collage.measure.wire.outcomes import Failed
from collage.report.progress import Progress

FIRST_ROUNDS = 6
"""Rounds of the first heat."""
HEAT_ROUNDS = 12
"""Rounds of the others."""
_HOPELESS = 1.3
"""After the first heat a contender leaves if it is slower beyond doubt than this many times the fastest; later, if it
is slower beyond doubt. So few rounds say little of who is faster by a few per cent."""
_CLOSE = 0.02
"""An interval that lies within so much of its ratio settles a comparison, whichever side of 1 it is on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """How a race ended.

    Attributes:
        rounds: Samples by name, by round. Round `i` of all contenders ran together; who left early has fewer.
        failed: Why others have none, by name.
    """

    rounds: Mapping[str, Rounds]
    failed: Mapping[str, str]


def race(
    contenders: Mapping[str, Contender],
    incumbents: Collection[str],
    *,
    rounds: int,
    round_s: float,
    limit_s: float,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> Raced:
    """Runs heats until it is known who is fastest, or there were enough.

    The fastest of the incumbents never leaves: it is what everything is compared with.

    Args:
        contenders: Who runs, by name.
        incumbents: Names of those of whom the fastest stays.
        rounds: At most so many in all.
        round_s: Seconds each contender runs in a round.
        limit_s: No heat begins after so many seconds, save the second.
        progress: Is told.
        clock: Seconds that never go back.
    """
    began = clock()
    samples: dict[str, Rounds] = {}
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
            progress=lambda *_: progress.advance(),
        )
        for name, answer in answers.items():
            if isinstance(answer, Failed):
                failed[name] = answer.reason
                samples.pop(name, None)
            else:
                samples[name] = samples.get(name, ()) + answer
        first, done = done == 0, done + heat
        ran = {name: samples[name] for name in running if name in samples}
        running = _staying(ran, incumbents, _HOPELESS if first else 1.0)
        settled = _is_settled({name: ran[name] for name in running})
        if done >= rounds or (not first and (settled or clock() - began > limit_s)):
            break
    return Raced(rounds=samples, failed=failed)


def _staying(ran: Mapping[str, Rounds], incumbents: Collection[str], slower: float) -> list[str]:
    """Who has another heat."""
    best = {_fastest(group) for group in (ran, {name: ran[name] for name in ran if name in incumbents}) if group}
    return [name for name in ran if name in best or _ratio(ran, name, _fastest(ran)).low <= slower]


def _is_settled(ran: Mapping[str, Rounds]) -> bool:
    """Whether it is known of every contender if it is slower than the fastest, or that the difference is small."""
    ratios = [_ratio(ran, name, _fastest(ran)) for name in ran if name != _fastest(ran)]
    return all(ratio.low > 1 or ratio.high - ratio.low <= 2 * _CLOSE for ratio in ratios)


def _fastest(ran: Mapping[str, Rounds]) -> str:
    middle = {name: statistics.median(statistics.median(each) for each in answer) for name, answer in ran.items()}
    return min(middle, key=lambda name: (middle[name], name))


def _ratio(ran: Mapping[str, Rounds], name: str, to: str) -> Interval:
    return ratio_interval(ran[name], ran[to], seed=0)
