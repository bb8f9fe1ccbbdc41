"""Replay rules of who stays in a race over recorded races: what do they save, and what is lost?

Usage:
    python -m benchmarks.race_rules [--races FILE.json.xz] [--draws N] [--results FILE.json]
    python -m benchmarks.race_rules --races FILE.json.xz --collect DATABASE...

A recorded race gives the noise: the samples of its contenders, by round, of bound calls and of runs as users call them.
A draw resamples its rounds, the same ones for all contenders. Either true times are those of all recorded rounds, or
samples are multiplied so that the best mixed plan truly takes 0.40 or 0.90 to 1.02 of the best single toolchain, or
single toolchains race alone. A process may be slow for its whole life, so each heat multiplies each contender's samples
by a factor of its own. Mixed plans have two to five kernels by chance, which says nothing of their true times.

Each way races the same draws, within the time that its turns and the starts of its processes would take. The plan is
then decided on as in `optimize`. What it loses is the true time of its plan over that of the plan that is decided on
after all rounds of all contenders. Recorded rounds have two runs of each kind at least. Where a run fills half of a
round, one of them is taken, and its time, but by `before` and `two runs`. `--collect` makes the file of races from
tuning databases: quartiles of each round.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import lzma
import math
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest import mock

import numpy as np

from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.recorded_races import Recorded, collected, read, two_of
from collage.decide import timed
from collage.decide.decision import decide
from collage.decide.races import staying
from collage.decide.races.race import HEAT_ROUNDS, LEAST_RUNS, heat_rounds, heats_left
from collage.decide.races.staying import LOOKED_AT, Outlook, Staying, fastest, is_settled, ratio_of
from collage.decide.timed import Timed
from collage.measure.contenders.interleaved import Rounds
from collage.measure.statistics import Interval
from collage.options import PRESETS

TRUE_RATIOS: Final = (0.90, 0.94, 0.97, 1.00, 1.02)
"""True times of the mixed plan in question, relative to the best single toolchain."""
FAR_AHEAD: Final = 0.40
"""True time of the best of mixed plans that are all faster by far."""
AS_MEASURED: Final = "as measured"
ALONE: Final = "singles alone"
KINDS: Final = (AS_MEASURED, f"{FAR_AHEAD:.2f}", *(f"{ratio:.2f}" for ratio in TRUE_RATIOS), ALONE)
"""Kinds of draws."""
OTHERS: Final = 1.04
"""Each further mixed plan is slower than the one before by this factor."""
OTHERS_FAR_AHEAD: Final = 1.02
"""The same of mixed plans that are all faster by far: most of them share their longest kernels."""
PROCESS_NOISE: Final = 0.02
"""Standard deviation of a process's speed."""
RACES: Final = Path(__file__).parent / "results" / "races-epyc-2-cores.json.xz"
MOST_ROUNDS: Final = PRESETS["default"].rounds
LIMIT_S: Final = PRESETS["default"].race_s
_HALF_S: Final = PRESETS["default"].round_s / 2
_RESAMPLES: Final = 200
_NEVER_S: Final = 1e9
_BEYOND_DOUBT: Final = statistics.NormalDist().inv_cdf(0.975)
START_S: Final = 1.5
"""Seconds to load one contender, beside another one."""

Rule: TypeAlias = Callable[..., list[str]]
_Way: TypeAlias = dict[str, Rounds]


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """A way to race.

    Attributes:
        rule: Who runs another heat.
        least_runs: Runs of each kind that a contender makes in a round, at least.
        limit_s: Seconds after which no heat begins, except the second.
        least_rounds: Rounds of each later heat, at least.
    """

    rule: Rule
    least_runs: int = LEAST_RUNS
    limit_s: float = LIMIT_S
    least_rounds: int = 0


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a rule did with one draw."""

    kept: str
    turns: int = 0
    starts: int = 0
    seconds: float = 0.0


class Draw:
    """A race that could have been: rounds of a recorded one, with known true times.

    Args:
        recorded: Where rounds come from.
        factors: By which each contender's samples are multiplied.
        random: Chooses rounds.
    """

    def __init__(self, recorded: Recorded, factors: Mapping[str, float], random: np.random.Generator) -> None:
        self.names = tuple(factors)
        self.singles = frozenset(name for name in self.names if name in recorded.singles)
        self._recorded = recorded
        self._factors = factors
        length = len(next(iter(recorded.rounds.values())))
        self._rounds = random.integers(0, length, MOST_ROUNDS)
        self._which = random.integers(0, 2, MOST_ROUNDS)
        self._process = np.exp(PROCESS_NOISE * random.standard_normal((MOST_ROUNDS, len(self.names))))
        self.kernels = {name: 1 if name in self.singles else int(random.integers(2, 6)) for name in self.names}
        self.true_us = {name: factors[name] * _middle(recorded.rounds[name]) for name in self.names}

    def heat(self, names: Sequence[str], heat: int, first: int, count: int, least_runs: int = 2) -> tuple[_Way, _Way]:
        """Return what contenders do in some rounds: as bound, and as users call them.

        Args:
            names: Those that run.
            heat: Number of the heat.
            first: Number of its first round.
            count: Number of its rounds.
            least_runs: Runs of each kind in a round, at least; two were recorded.
        """
        found: tuple[_Way, _Way] = ({}, {})
        for name in names:
            factor = self._factors[name] * float(self._process[heat, self.names.index(name)])
            is_long = self.true_us[name] / 1e6 > _HALF_S
            for way, into in zip((self._recorded.rounds, self._recorded.called), found, strict=True):
                if name in way:
                    rounds = [way[name][index] for index in self._rounds[first : first + count]]
                    if is_long and least_runs == 1:
                        which = self._which[first : first + count]
                        rounds = [(two_of(samples)[at],) for samples, at in zip(rounds, which, strict=True)]
                    into[name] = tuple(tuple(factor * sample for sample in samples) for samples in rounds)
        return found

    def turn_s(self, name: str, least_runs: int = 2) -> float:
        """Return what a turn takes: a pause, warming up, and some samples or half of a round's time of each kind."""
        call_s = self.true_us[name] / 1e6
        untimed = math.ceil(0.015 / call_s) + (call_s < 0.015)
        return 0.06 + untimed * call_s + 2 * max(_HALF_S, least_runs * call_s)


def before(
    ran: Mapping[str, Rounds],
    called: Mapping[str, Rounds],
    incumbents: Collection[str],
    *,
    kernels: Mapping[str, int],
    heats: int,
    end: int,
) -> list[str]:
    """Keep whoever is not known to be slower, by 1.3 after the first heat: the rule before `Staying`."""
    best = {fastest(ran, list(ran)), fastest(ran, [name for name in ran if name in incumbents])}
    to = fastest(ran, list(ran))
    slower = 1.3 if heats == 1 else 1.0
    names = [name for name in ran if name in best or quick_interval(ran[name], ran[to], seed=0).low <= slower]
    return [] if heats > 1 and all(is_settled(way, names) for way in (ran, called)) else names


def to_the_end(ran: Mapping[str, Rounds], *_: object, **__: object) -> list[str]:
    """Keep everybody."""
    return list(ran)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Normal(Staying):
    """The rule before few rounds were taken to say little of how much they vary."""

    def _outlook(self, way: Mapping[str, Rounds], name: str, to: str, heats: int, end: int) -> Outlook:
        rounds = len(way[name])
        ratio = ratio_of(way, name, to, self.percent)
        noise = (math.log(ratio.high) - math.log(ratio.low)) / (2 * _BEYOND_DOUBT)
        so_far = rounds / max(end, rounds)
        deviation = math.hypot(noise, PROCESS_NOISE / math.sqrt(heats)) * math.sqrt(1 - so_far)
        return Outlook(math.log(ratio.value), max(deviation, 1e-9), -_BEYOND_DOUBT * noise * math.sqrt(so_far))


VARIANTS: Final[Mapping[str, Variant]] = {
    "before": Variant(before, 2, 40.0),
    "normal outlook": Variant(Normal()),
    "default": Variant(Staying()),
    "chance 2 %": Variant(Staying(futile=0.02)),
    "chance 10 %": Variant(Staying(futile=0.1)),
    "worth nothing": Variant(Staying(worth=0.0, order_worth=0.0)),
    "worth 0.2 %": Variant(Staying(worth=0.002)),
    "worth 1 %": Variant(Staying(worth=0.01)),
    "order worth 0.5 %": Variant(Staying(order_worth=0.005)),
    "order worth 1 %": Variant(Staying(order_worth=0.01)),
    "heats of 12": Variant(Staying(), least_rounds=HEAT_ROUNDS),
    "two singles": Variant(Staying(singles=2)),
    "nobody leaves at once": Variant(Staying(far_slower=math.inf)),
    "singles stay": Variant(Staying(far_behind=math.inf)),
    "numbers of kernels count for nothing": Variant(Staying(alike=0.0)),
    "two runs": Variant(Staying(), 2),
    "40 s": Variant(Staying(), limit_s=40.0),
    "60 s": Variant(Staying(), limit_s=60.0),
}
"""Ways to race: the first rule, then what is the default and what differs from it in one thing."""


def raced(draw: Draw, variant: Variant, *, seed: int = 0) -> Outcome:
    """Race a draw in a way, and decide."""
    rule, least_runs, limit_s = variant.rule, variant.least_runs, variant.limit_s
    samples: dict[str, Rounds] = {}
    called: dict[str, Rounds] = {}
    outcome, running, heats, done = Outcome(kept=""), list(draw.names), 0, 0
    while running:
        planned = max(heat_rounds(done, running, draw.singles), variant.least_rounds if done else 0)
        count = min(planned, MOST_ROUNDS - done)
        heat = draw.heat(running, heats, done, count, least_runs)
        left: set[str] = set()
        if isinstance(rule, Staying) and not done:
            ran, as_called = ({name: rounds[:LOOKED_AT] for name, rounds in way.items()} for way in heat)
            left = rule.leaving(ran, as_called, draw.singles)
        for way, found in zip((samples, called), heat, strict=True):
            for name, rounds in found.items():
                way[name] = way.get(name, ()) + (rounds[:LOOKED_AT] if name in left else rounds)
        outcome.starts += len(running)
        for name in running:
            ran_rounds = LOOKED_AT if name in left else count
            outcome.turns += ran_rounds
            outcome.seconds += START_S + ran_rounds * draw.turn_s(name, least_runs)
        running = [name for name in running if name not in left]
        done, heats = done + count, heats + 1
        end = done + HEAT_ROUNDS * heats_left(outcome.seconds, outcome.turns, limit_s)
        ran = {name: samples[name] for name in running}
        running = rule(ran, called, draw.singles, kernels=draw.kernels, heats=heats, end=min(end, MOST_ROUNDS))
        if done >= MOST_ROUNDS or (heats > 1 and outcome.seconds > limit_s):
            break
    contenders = [
        Timed(
            name=name,
            single=name in draw.singles,
            kernels=draw.kernels[name],
            toolchains=1 if name in draw.singles else 2,
            rounds_us=samples[name],
            called_us=called.get(name, ()),
        )
        for name in draw.names
    ]
    outcome.kept = decide(contenders, seed).winner
    return outcome


def resampled(recorded: Recorded, random: np.random.Generator) -> Draw:
    """Draw rounds of a recorded race; true times are those of all its rounds."""
    return Draw(recorded, dict.fromkeys(recorded.rounds, 1.0), random)


def synthetic(recorded: Recorded, ratio: float, random: np.random.Generator) -> Draw:
    """Draw rounds of a recorded race in which the best mixed plan takes a known share of the best single toolchain."""
    mixes = [name for name in recorded.rounds if name not in recorded.singles]
    best_us = min(_middle(recorded.rounds[name]) for name in recorded.singles)
    factors = dict.fromkeys(recorded.rounds, 1.0)
    apart = OTHERS_FAR_AHEAD if ratio == FAR_AHEAD else OTHERS
    for place, index in enumerate(random.permutation(len(mixes))):
        name = mixes[index]
        factors[name] = ratio * apart**place * best_us / _middle(recorded.rounds[name])
    return Draw(recorded, factors, random)


def alone(recorded: Recorded, random: np.random.Generator) -> Draw:
    """Draw rounds of a recorded race of its single toolchains alone."""
    return Draw(recorded, dict.fromkeys((name for name in recorded.rounds if name in recorded.singles), 1.0), random)


def drawn(kind: str, recorded: Recorded, random: np.random.Generator) -> Draw:
    """Draw a race of some kind."""
    if kind == AS_MEASURED:
        return resampled(recorded, random)
    return alone(recorded, random) if kind == ALONE else synthetic(recorded, float(kind), random)


def quick_interval(
    ours: Sequence[Sequence[float]],
    theirs: Sequence[Sequence[float]],
    *,
    seed: int,
    confidence: float = 0.95,
    percent: float = 50.0,
) -> Interval:
    """Compute an interval as `ratio_interval` does, of fewer resamples, and of rounds alone."""
    ratios = np.percentile(ours, percent, axis=1) / np.percentile(theirs, percent, axis=1)
    chosen = np.random.default_rng(seed).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.median(ratios[chosen], axis=1), [tail, 1 - tail])
    return Interval(float(np.median(ratios)), float(low), float(high))


@contextlib.contextmanager
def quick_intervals() -> Iterator[None]:
    """Let rules and decisions use quick intervals: one replay computes a hundred thousand of them."""
    with (
        mock.patch.object(staying, "ratio_interval", quick_interval),
        mock.patch.object(timed, "ratio_interval", quick_interval),
    ):
        yield


def replayed(races: Sequence[Recorded], draws: int, seed: int = 0) -> list[dict[str, Any]]:
    """Race draws of each race in each way; return one row for each kind of draw and way, as JSON."""
    rows = []
    for kind in KINDS:
        random = np.random.default_rng(seed)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
        for recorded in races:
            for _ in range(draws):
                draw = drawn(kind, recorded, random)
                ended = raced(draw, Variant(to_the_end, 2, _NEVER_S)).kept
                for name, variant in VARIANTS.items():
                    outcome = raced(draw, variant)
                    found[name].append(
                        {
                            "loss": draw.true_us[outcome.kept] / draw.true_us[ended] - 1,
                            "regret": draw.true_us[outcome.kept] / min(draw.true_us.values()) - 1,
                            "mixed": float(outcome.kept not in draw.singles),
                            "turns": outcome.turns,
                            "starts": outcome.starts,
                            "seconds": outcome.seconds,
                        }
                    )
        for name, each in found.items():
            rows.append({"true_ratio": kind, "rule": name, "draws": len(each), **_summary(each)})
    return rows


def _summary(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    means = {name: statistics.fmean(each[name] for each in found) for name in found[0]}
    losses = [each["loss"] for each in found]
    return {**means, "median_loss": statistics.median(losses), "worst_loss": max(losses)}


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = " ".join(str(__doc__).split("\n\n", 2)[2].split())
    lines = head("Rules of who stays in a race", report["environment"], how, f"{report['races']} races")
    headings = ("true ratio", "rule", "loss", "median", "worst", "over the best", "mix kept", "turns", "starts", "s")
    rows = [
        (
            row["true_ratio"],
            row["rule"],
            *(f"{100 * row[name]:.2f} %" for name in ("loss", "median_loss", "worst_loss", "regret", "mixed")),
            *(f"{row[name]:.1f}" for name in ("turns", "starts", "seconds")),
        )
        for row in report["rows"]
    ]
    return "\n".join([*lines, *lines_of(headings, rows)]) + "\n"


def _middle(rounds: Rounds) -> float:
    return statistics.median(statistics.median(samples) for samples in rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect, or replay and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race_rules", description=__doc__)
    parser.add_argument("--races", type=Path, default=RACES, metavar="FILE.json.xz")
    parser.add_argument("--collect", type=Path, nargs="+", default=[], metavar="DATABASE")
    parser.add_argument("--draws", type=int, default=10, metavar="N", help="of each race and true ratio")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    noting(parser)
    options = parser.parse_args(arguments)
    if options.collect:
        races = collected(options.collect)
        options.races.write_bytes(lzma.compress(json.dumps(races).encode(), preset=9))
        print(f"{len(races)} races")
        return 0
    recorded = read(options.races)
    with quick_intervals():
        rows = replayed(recorded, options.draws)
    report = {"schema_version": 1, "environment": environment(), "races": len(recorded), "rows": rows}
    page = markdown(report)
    print(page)
    if options.results:
        written(options.results, report, page, options.note, afresh=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
