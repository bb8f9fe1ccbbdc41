"""Runs contenders against each other: a process for each, and in each round a burst of each.

Two processes of one contender differ by a percent or two for as long as they live: where their memory lies and which
threads run where is chance. So contenders are started in shuffled order, and anew after some rounds.

A noisy machine takes more rounds than a quiet one for the same interval. So after the rounds that were asked for, it
goes on until the ratios are known well enough (Chow and Robbins, On the asymptotic theory of fixed-width sequential
confidence intervals for the mean, 1965). When it ends depends on the width of the intervals alone, not on where they
are. Only toolchains that are surely slower than the best of them are not started anew.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.judge.contender import Contender
from benchmarks.judge.process import ContenderError, ContenderProcess
from benchmarks.judge.statistics import Interval, decides, disagreement, paired_ratio

PATIENCE: Final = 3
"""`Protocol.patience` of benchmarks."""
WANTED: Final = 0.02
"""`Protocol.half_width`. It is less than what decides anything, so that few that are as fast reach beyond 1.03."""
PROCESS_ROUNDS: Final = 12
"""`Protocol.process_rounds`. A start takes seconds, so fewer rounds would cost more than they tell."""
_LOOK: Final = 10
"""Rounds between two looks at the intervals, where processes are never started anew. Else it is those of a process."""
_FAR_BEHIND: Final = 0.9
"""A toolchain of which the best takes less than this share is not started anew: nobody asks how much longer."""
_BEHIND: Final = 0.97
"""The same where plans are judged. Nothing is compared with such a toolchain then, so it need not be known how much."""
_SURE: Final = 3
"""Processes after which a toolchain may leave. The interval of two that are alike by chance is short."""
_STARTING: Final = 2
"""Contenders that start at the same time. Nothing is timed then, and starting leaves cores idle."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Timing protocol of contenders.

    Attributes:
        threads: Threads each contender may use.
        rounds: Rounds that count, at least; processes end with all of theirs. A warm-up round precedes them.
        process_rounds: Rounds after which contenders are started anew, at most `rounds`; None if they never are, as
            where that takes minutes. Then intervals say nothing of how processes differ.
        patience: How many times `rounds` it may take until `known` says that there are enough.
        half_width: See `known`.
        seconds: Least duration of a burst, in seconds; a burst has at least `min_runs` runs.
        min_runs: See `seconds`. Two runs in a row meet the machine in one state, so that a second one says little.
        warmup_s: Duration of untimed runs before a burst, at least one run, since other contenders used the caches. One
            run precedes those as users call it, which follow.
        settle_s: Pause before a burst. With the warm-up it outlasts the spinning threads of the previous contender:
            those of ONNX Runtime spin for about 60 ms.
        deadline_s: Time limit for setting up, and for a burst.
    """

    threads: int
    rounds: int = 120
    process_rounds: int | None = PROCESS_ROUNDS
    patience: int = 1
    half_width: float = WANTED
    seconds: float = 0.04
    min_runs: int = 1
    warmup_s: float = 0.04
    settle_s: float = 0.02
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        least = (self.threads, self.rounds, self.patience, self.min_runs)
        if min(least) < 1 or (self.process_rounds is not None and self.process_rounds < 1):
            raise ValueError("threads, rounds, process_rounds, patience and min_runs must be at least 1")

    @property
    def rounds_of_a_process(self) -> int | None:
        """`process_rounds`, or `rounds` if these are fewer."""
        return None if self.process_rounds is None else min(self.process_rounds, self.rounds)


@dataclasses.dataclass(slots=True, kw_only=True)
class Outcome:
    """Result of one contender.

    Attributes:
        contender: The contender.
        rounds_us: Run times in microseconds, one list for each round that counts.
        called_us: The same for runs as users call them; empty if the contender has no such call.
        process_rounds: As `Protocol.rounds_of_a_process`.
        max_error: `disagreement` with the expected outputs, or else with the first contender that ran; or, if that is
            more, of its runs as users call them with its other ones. The largest of all its processes.
        note: The contender's description of its runs.
        left: Whether it was surely slower, and ran no further rounds.
        failed: Why it has no times, if so.
    """

    contender: Contender
    rounds_us: list[list[float]] = dataclasses.field(default_factory=list)
    called_us: list[list[float]] = dataclasses.field(default_factory=list)
    process_rounds: int | None = None
    max_error: float | None = None
    note: str = ""
    left: bool = False
    failed: str | None = None

    def ratio_to(self, base: Outcome, *, as_called: bool = False) -> Interval:
        """Return the ratio of its times to those of another contender of the same race, over rounds that both ran.

        Args:
            base: The other one; neither failed.
            as_called: Whether runs as users call them are compared, not bound ones.
        """
        own, other = (self.called_us, base.called_us) if as_called else (self.rounds_us, base.rounds_us)
        both = min(len(own), len(other))
        return paired_ratio(own[:both], other[:both], self.process_rounds)


def shuffled(count: int, seed: int | str) -> list[int]:
    """Return the order of a round or of a start, so that no contender always follows the same one.

    Examples:
        >>> sorted(shuffled(5, seed=3))
        [0, 1, 2, 3, 4]
    """
    return random.Random(seed).sample(range(count), count)


def compete(
    model: Path,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    output_names: Sequence[str],
    contenders: Sequence[Contender],
    protocol: Protocol,
    tell: Callable[[str], None] = lambda _: None,
    *,
    expected: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> list[Outcome]:
    """Time contenders on one model.

    Args:
        model: The judged ONNX file.
        inputs: Input values by name, the same for all contenders.
        output_names: The model's outputs, in order.
        contenders: At least one.
        protocol: Timing protocol.
        tell: Receives progress messages, one line each.
        expected: Expected outputs by name, if they are known.

    Returns:
        One outcome for each contender, in their order.
    """
    each = protocol.rounds_of_a_process
    if each is not None:
        import scipy.stats  # noqa: F401  an optional dependency, which intervals need: better missed now than at the end
    outcomes = [Outcome(contender=contender, process_rounds=each) for contender in contenders]
    most, done = protocol.patience * protocol.rounds, 0
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        inputs_file = Path(folder, "inputs.npz")
        np.savez(inputs_file, **dict(inputs))  # type: ignore[arg-type]
        running = _Running(outcomes, protocol, Path(folder))
        try:
            while done < most and (done < protocol.rounds or not known(outcomes, protocol.half_width)):
                for outcome in leaving(outcomes, protocol.half_width) if each is not None else ():
                    outcome.left = True
                if any(outcome.left for outcome in outcomes) and sum(map(_runs_on, outcomes)) == 1:
                    break  # nobody is left to compare it with
                if not done or each is not None:
                    setup = {"inputs": str(inputs_file), "output_names": list(output_names)}
                    expected = running.started(model, setup, f"start {done}", expected, tell)
                    running.round(f"warm up {done}", counts=False)
                end = min(done + _LOOK, most) if each is None else done + each
                for turn in range(done, end):
                    limit = protocol.rounds if turn < protocol.rounds else f"up to {most}"
                    tell(f"round {turn + 1} of {limit}")
                    running.round(turn)
                done = end
        finally:
            running.close()
    return outcomes


class _Running:
    """The processes of contenders.

    Args:
        outcomes: Those of all contenders, which receive what is timed; a failed one has no process.
        protocol: Timing protocol.
        folder: Folder for files.
    """

    def __init__(self, outcomes: Sequence[Outcome], protocol: Protocol, folder: Path) -> None:
        self._outcomes = outcomes
        self._protocol = protocol
        self._folder = folder
        self._processes: dict[int, ContenderProcess] = {}

    def started(
        self,
        model: Path,
        setup: Mapping[str, Any],
        seed: str,
        expected: Mapping[str, np.ndarray[Any, Any]] | None,
        tell: Callable[[str], None],
    ) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """Start new processes in place of those before, and note the errors of what they compute.

        Args:
            model: The judged ONNX file.
            setup: Fields of the command that are the same for all.
            seed: Decides the order.
            expected: Expected outputs, if they are known.
            tell: Receives progress messages.

        Returns:
            The expected outputs, or else those of the first contender that ran, if one did.
        """
        self.close()
        order = [index for index in shuffled(len(self._outcomes), seed) if _runs_on(self._outcomes[index])]
        tell(f"set up {', '.join(self._outcomes[index].contender.name for index in order)}")

        def start(index: int) -> dict[str, Any] | None:
            contender = self._outcomes[index].contender
            self._processes[index] = ContenderProcess(Path(self._folder, f"{index}.log"))
            command = {
                "do": "setup",
                "file": str(contender.file.resolve()),
                "model": str(contender.path_for(model).resolve()),
                "outputs": str(self._outputs(index)),
                "threads": self._protocol.threads,
                "options": contender.setup_options(),
                **setup,
            }
            return self._asked(index, command)

        with ThreadPoolExecutor(_STARTING) as starters:
            answers = dict(zip(order, starters.map(start, order), strict=True))
        for index, answer in sorted(answers.items()):
            if answer is None:
                continue
            with np.load(self._outputs(index)) as archive:
                outputs = {name: archive[name] for name in archive.files}
            self._outputs(index).unlink()
            expected = outputs if expected is None else expected
            outcome = self._outcomes[index]
            outcome.note = answer["note"]
            errors = answer["called_error"], disagreement(expected, outputs)
            outcome.max_error = max(outcome.max_error or 0.0, *errors)
        return expected

    def round(self, seed: int | str, *, counts: bool = True) -> None:
        """Have each contender run a burst, in an order that the seed decides."""
        protocol = self._protocol
        burst = {
            "do": "burst",
            "seconds": protocol.seconds,
            "min_runs": protocol.min_runs,
            "warmup_s": protocol.warmup_s,
        }
        for index in shuffled(len(self._outcomes), seed):
            if index not in self._processes:
                continue
            time.sleep(protocol.settle_s)
            answer = self._asked(index, burst)
            if counts and answer is not None:
                self._outcomes[index].rounds_us.append(answer["samples_us"])
                if answer["called_us"]:
                    self._outcomes[index].called_us.append(answer["called_us"])

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def _outputs(self, index: int) -> Path:
        return Path(self._folder, f"{index}.npz")

    def _asked(self, index: int, command: dict[str, Any]) -> dict[str, Any] | None:
        """Return a contender's answer; one that fails leaves the race."""
        try:
            return self._processes[index].ask(command, self._protocol.deadline_s)
        except ContenderError as error:
            self._processes.pop(index).close()
            outcome = self._outcomes[index]
            outcome.failed, outcome.rounds_us, outcome.called_us = str(error), [], []
            return None


def fastest_of(outcomes: Iterable[Outcome], *, as_called: bool = False) -> Outcome | None:
    """Return who takes least, by the rounds that each ran together with the one that ran longest; None if nobody ran.

    Args:
        outcomes: Of one race.
        as_called: Whether runs as users call them count, not bound ones.
    """
    ran = [each for each in outcomes if (each.called_us if as_called else each.rounds_us)]
    longest = max(ran, key=lambda each: len(each.rounds_us), default=None)
    if longest is None:
        return None
    return min(ran, key=lambda each: (each.ratio_to(longest, as_called=as_called).value, each.contender.name))


def base_of(outcomes: Sequence[Outcome], *, as_called: bool = False) -> Outcome | None:
    """Return with whom others are compared: the fastest single toolchain, else the fastest; None if nobody ran."""
    singles = [each for each in outcomes if each.contender.kind == "single"]
    return fastest_of(singles, as_called=as_called) or fastest_of(outcomes, as_called=as_called)


def leaving(outcomes: Sequence[Outcome], half_width: float) -> list[Outcome]:
    """Return the toolchains that surely take longer than the base, in each way in which they ran.

    Where plans are judged, 3 % longer is enough, and their ratios need not be known any better. Else it takes more than
    a tenth, and ratios that are known as well as those of toolchains that stay.

    Args:
        outcomes: As they are after all rounds of a process.
        half_width: As for `known`.
    """
    plans = _plans_are_judged(outcomes)
    limit = _BEHIND if plans else _FAR_BEHIND
    found = []
    for outcome in filter(_runs_on, outcomes):
        if outcome.contender.kind == "outside" or len(outcome.rounds_us) < _SURE * (outcome.process_rounds or 0):
            continue
        ratios = list(_ratios(outcomes, outcome))
        if ratios and all(
            ratio.high < limit and (plans or decides(ratio.low, ratio.high, half_width)) for ratio in ratios
        ):
            found.append(outcome)
    return found


def known(outcomes: Sequence[Outcome], half_width: float) -> bool:
    """Return whether the ratio of each contender to the base is known well enough.

    Args:
        outcomes: As they are after a round; those that failed or left do not count. Where plans are judged, it is
            enough of a toolchain that it is surely slower than the base.
        half_width: No interval may reach farther to each side, on average. That of a contender that is slower than the
            base is of the base's ratio to it, so that it need not be known as well as one that is nearly as fast.

    Examples:
        >>> steady, noisy = ([[100.0], [101.0], [100.0], [101.0]], [[100.0], [90.0], [120.0], [100.0]])
        >>> contender = Contender(name="it", file=Path("it.py"))
        >>> outcomes = [Outcome(contender=contender, rounds_us=rounds) for rounds in (steady, noisy)]
        >>> known(outcomes, 0.02), known([outcomes[0], outcomes[0]], 0.02)
        (False, True)
    """
    plans = _plans_are_judged(outcomes)
    for outcome in filter(_runs_on, outcomes):
        ratios = list(_ratios(outcomes, outcome))
        if not ratios:
            return False
        if plans and outcome.contender.kind != "outside" and all(ratio.high < 1 for ratio in ratios):
            continue
        for ratio in ratios:
            low, high = (ratio.low, ratio.high) if ratio.value <= 1 else (1 / ratio.high, 1 / ratio.low)
            if not decides(low, high, half_width):
                return False
    return True


def _plans_are_judged(outcomes: Sequence[Outcome]) -> bool:
    return any(each.contender.kind == "outside" and each.failed is None for each in outcomes)


def _runs_on(outcome: Outcome) -> bool:
    return outcome.failed is None and not outcome.left


def _ratios(outcomes: Sequence[Outcome], of: Outcome) -> Iterator[Interval]:
    """Yield the ratio of the base to a contender, for each way in which that ran, after several processes."""
    if of.process_rounds is not None and len(of.rounds_us) <= of.process_rounds:
        return
    for as_called in (False, True):
        base = base_of(outcomes, as_called=as_called)
        if base is not None and (of.called_us if as_called else of.rounds_us):
            yield base.ratio_to(of, as_called=as_called)
