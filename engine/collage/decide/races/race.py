"""Find the fastest of several whole plans in as few rounds as possible.

A race, as in O. Maron and A. W. Moore, "Hoeffding Races" (NIPS 1993): contenders that further rounds are unlikely to
make the winner leave (`Staying`), the others continue. Rounds are grouped into heats. Each heat starts new processes,
because a process may be slower than an identical one for its whole lifetime.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping

from collage.decide.races.staying import Staying
from collage.measure.clocks.load_wait import LoadWait
from collage.measure.contenders.interleaved import DEADLINE_S, Contender, Rounds, interleaved
from collage.measure.contenders.repeating import Repeating
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed
from collage.report.progress import Progress

FIRST_ROUNDS = 6
"""Rounds of the first heat."""
HEAT_ROUNDS = 12
"""Rounds of each later heat."""
MIXES_ROUNDS = 6
"""Rounds of each later heat of mixed plans alone. None of them has to be significantly faster, so new processes tell
more than more rounds of the same ones.
"""
LEAST_RUNS = 1
"""Runs of each kind that a contender makes in a round, at least. Two runs in a row meet the machine in one state, so of
a model that takes long a second one says little: as many seconds of further rounds say more.
"""
_STAYING = 3
"""Contenders that usually run more than the first heat."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """Result of a race.

    Attributes:
        rounds: Samples by name, by round. The `i`-th of all contenders ran together; those that left early have fewer.
        called: The same of runs as users call them; nothing of contenders that have no such call.
        calibrations_us: Time of the calibration kernel beside each round, by name.
        parts_us: Median time of each step in its place, in each round of the first heat, by name of the contender and
            of the step; nothing of contenders without steps.
        failed: Reason for each contender without samples, by name.
        open: Names of the mixed plans whose order is open, if they wait for others to join.
        cut_short: Whether `no_time` ended it, though something was open.
        repeated_s: Seconds in which turns were taken again. No limit counts them, or a load would cost rounds.
    """

    rounds: Mapping[str, Rounds]
    called: Mapping[str, Rounds]
    calibrations_us: Mapping[str, tuple[float, ...]]
    parts_us: Mapping[str, tuple[Mapping[str, float], ...]]
    failed: Mapping[str, str]
    open: tuple[str, ...] = ()
    cut_short: bool = False
    repeated_s: float = 0.0


def race(
    contenders: Mapping[str, Contender],
    incumbents: Collection[str],
    *,
    kernels: Mapping[str, int] | None = None,
    rounds: int,
    round_s: float,
    limit_s: float,
    least_heats: int = 2,
    first_round: int = 0,
    keep: Collection[str] = (),
    mixes_wait: bool = False,
    no_time: Callable[[float], bool] = lambda _: False,
    deadline_s: float = DEADLINE_S,
    threads: int,
    load_wait_s: float,
    percent: float = 50.0,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> Raced:
    """Run heats until nothing is open or the limit on rounds or time is reached.

    The fastest incumbent stays in the race, since every other contender is compared with it, unless it is slower by far
    than all of those that stay. So do those to keep, as long as another does that is neither: what they take relative
    to each other is known.

    Args:
        contenders: Contenders by name.
        incumbents: Names of the incumbents.
        kernels: As for `Staying`.
        rounds: Maximum number of rounds in total.
        round_s: Seconds each contender runs in a round.
        limit_s: Seconds after which no heat begins, without those in which turns are taken again.
        least_heats: Heats that begin all the same, as long as anything is open.
        first_round: Number of the first round.
        keep: Names of the contenders to keep: what they did in earlier rounds would be lost if they left.
        mixes_wait: Whether it ends after the first heat if nothing but the order of mixed plans is open then.
        no_time: Whether no heat begins but the first that is expected to take so many seconds, and no turn is repeated.
        deadline_s: Seconds after which a contender that does not answer is killed.
        threads: Threads of the calibration kernel.
        load_wait_s: Seconds that other load is waited for at most before a turn is taken again; 0 for not at all.
        percent: Which percentile of a round's samples counts.
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
    done = heats = 0
    cut_short = False
    waiting: tuple[str, ...] = ()
    staying = Staying(percent=percent)
    # nothing is taken again unless the budget leaves twice what the race may last
    repeating = Repeating(
        LoadWait(threads, load_wait_s), limit_s, progress.message, no_time=lambda: no_time(2 * limit_s), clock=clock
    )
    while running:
        heat = min(heat_rounds(done, running, incumbents), rounds - done)
        progress.phase("timing whole plans" if done else "timing whole plans, first rounds", heat * len(running))
        answers = interleaved(
            [contenders[name] for name in running],
            rounds=heat,
            burst_s=round_s,
            first_round=first_round + done,
            min_runs=LEAST_RUNS,
            as_called=True,
            in_parts=done == 0,
            calibration_threads=threads,
            deadline_s=deadline_s,
            progress=lambda *_: progress.advance(),
            on_burst=noted,
            repeating=repeating,
            leaving=None if done else lambda so_far: staying.leaving(so_far, called, incumbents).difference(keep),
        )
        for name, answer in answers.items():
            if isinstance(answer, Failed):
                failed[name] = answer.reason
                for rounds_of in (samples, called, calibrations_us, parts_us):
                    rounds_of.pop(name, None)
            else:
                samples[name] = samples.get(name, ()) + answer
        done, heats = done + heat, heats + 1
        turns = sum(map(len, samples.values()))
        elapsed_s = clock() - began - repeating.spent_s
        if not turns or done >= rounds or (heats >= least_heats and elapsed_s > limit_s):
            break
        ran = {name: samples[name] for name in running if len(samples.get(name, ())) == done}
        end = min(rounds, done + HEAT_ROUNDS * heats_left(elapsed_s, turns, limit_s))
        likely = staying(ran, called, incumbents, kernels=kernels, heats=heats, end=end)
        open_still = set(likely).difference(incumbents, keep) if keep else likely
        running = [name for name in ran if name in {*likely, *keep}] if open_still else []
        if mixes_wait and running and not set(running).intersection(incumbents):
            waiting = tuple(running)
            break
        following = min(heat_rounds(done, running, incumbents), rounds - done)
        if running and no_time(elapsed_s / turns * len(running) * following):
            cut_short = True
            break
    return Raced(
        rounds=samples,
        called=called,
        calibrations_us=calibrations_us,
        parts_us=parts_us,
        failed=failed,
        open=waiting,
        cut_short=cut_short,
        repeated_s=repeating.spent_s,
    )


def heat_rounds(done: int, running: Collection[str], incumbents: Collection[str]) -> int:
    """Return how many rounds the next heat has.

    Args:
        done: Rounds so far.
        running: Names of those that run it.
        incumbents: Names of the single toolchains.
    """
    if not done:
        return FIRST_ROUNDS
    return HEAT_ROUNDS if set(incumbents).intersection(running) else MIXES_ROUNDS


def heats_left(elapsed_s: float, turns: int, limit_s: float) -> int:
    """Estimate how many heats begin before a limit: at least one, of about as many contenders as usually stay.

    Args:
        elapsed_s: Seconds that all turns so far took, starts of processes included.
        turns: Number of these.
        limit_s: Seconds after which no heat begins.
    """
    heat_s = HEAT_ROUNDS * _STAYING * elapsed_s / turns
    return 1 + int(max(0.0, limit_s - elapsed_s) / max(heat_s, 1e-3))
