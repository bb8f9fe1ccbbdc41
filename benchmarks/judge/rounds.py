"""Runs contenders against each other: one process each, one burst each per round.

A noisy machine takes more rounds than a quiet one for the same interval. So after the rounds that were asked for, it
goes on until the ratios are known well enough (Chow and Robbins, On the asymptotic theory of fixed-width sequential
confidence intervals for the mean, 1965). When it ends depends on the width of the intervals alone, not on where they
are.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.judge.contender import Contender
from benchmarks.judge.process import ContenderError, ContenderProcess
from benchmarks.judge.statistics import HALF_WIDTH, decides, disagreement, paired_ratio

PATIENCE: Final = 3
"""`Protocol.patience` of benchmarks."""
_LOOK: Final = 10
"""Rounds between two looks at the intervals."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Timing protocol of contenders.

    Attributes:
        threads: Threads each contender may use.
        rounds: Rounds that count, at least; a warm-up round precedes them.
        patience: How many times `rounds` it may take until `known` says that there are enough.
        half_width: See `known`.
        seconds: Least duration of a burst, in seconds; a burst has at least `min_runs` runs.
        min_runs: See `seconds`.
        warmup_s: Duration of untimed runs before a burst, at least one run, since other contenders used the caches.
        settle_s: Pause before a burst. With the warm-up it outlasts the spinning threads of the previous contender:
            those of ONNX Runtime spin for about 60 ms.
        deadline_s: Time limit for setting up, and for a burst.
    """

    threads: int
    rounds: int = 60
    patience: int = 1
    half_width: float = HALF_WIDTH
    seconds: float = 0.08
    min_runs: int = 2
    warmup_s: float = 0.04
    settle_s: float = 0.02
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        if min(self.threads, self.rounds, self.patience, self.min_runs) < 1:
            raise ValueError("threads, rounds, patience and min_runs must be at least 1")


@dataclasses.dataclass(slots=True, kw_only=True)
class Outcome:
    """Result of one contender.

    Attributes:
        contender: The contender.
        rounds_us: Run times in microseconds, one list for each round that counts.
        called_us: The same for runs as users call them; empty if the contender has no such call.
        max_error: `disagreement` with the expected outputs, or else with the first contender that ran; or, if that is
            more, of its runs as users call them with its other ones.
        note: The contender's description of its runs.
        failed: Why it has no times, if so.
    """

    contender: Contender
    rounds_us: list[list[float]] = dataclasses.field(default_factory=list)
    called_us: list[list[float]] = dataclasses.field(default_factory=list)
    max_error: float | None = None
    note: str = ""
    failed: str | None = None


def shuffled(count: int, turn: int) -> list[int]:
    """Return the running order of a round, so that no contender always follows the same one.

    Examples:
        >>> sorted(shuffled(5, turn=3))
        [0, 1, 2, 3, 4]
    """
    return random.Random(turn).sample(range(count), count)


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
    outcomes = [Outcome(contender=contender) for contender in contenders]
    processes: dict[int, ContenderProcess] = {}
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        try:
            archive = Path(folder, "inputs.npz")
            np.savez(archive, **dict(inputs))  # type: ignore[arg-type]
            first = expected
            for index, outcome in enumerate(outcomes):
                contender = outcome.contender
                tell(f"set up {contender.name}")
                process = ContenderProcess(Path(folder, f"{index}.log"))
                processes[index] = process
                written = Path(folder, f"{index}.npz")
                command = {
                    "do": "setup",
                    "file": str(contender.file.resolve()),
                    "model": str(contender.path_for(model).resolve()),
                    "inputs": str(archive),
                    "outputs": str(written),
                    "output_names": list(output_names),
                    "threads": protocol.threads,
                    "options": contender.setup_options(),
                }
                try:
                    answer = process.ask(command, protocol.deadline_s)
                except ContenderError as error:
                    _fail(outcome, processes.pop(index), str(error))
                    continue
                with np.load(written) as found:
                    outputs = {name: found[name] for name in found.files}
                written.unlink()
                first = outputs if first is None else first
                outcome.max_error = max(disagreement(first, outputs), answer["called_error"])
                outcome.note = answer["note"]

            for turn in range(protocol.patience * protocol.rounds + 1):
                enough = turn > protocol.rounds
                if enough and turn % _LOOK == 1 and known(outcomes, protocol.half_width):
                    break
                tell(f"round {turn} of {f'up to {protocol.patience * protocol.rounds}' if enough else protocol.rounds}")
                for index in shuffled(len(outcomes), turn):
                    if index not in processes:
                        continue
                    time.sleep(protocol.settle_s)
                    burst = {
                        "do": "burst",
                        "seconds": protocol.seconds,
                        "min_runs": protocol.min_runs,
                        "warmup_s": protocol.warmup_s,
                    }
                    try:
                        answer = processes[index].ask(burst, protocol.deadline_s)
                    except ContenderError as error:
                        _fail(outcomes[index], processes.pop(index), str(error))
                        continue
                    if turn:
                        outcomes[index].rounds_us.append(answer["samples_us"])
                        if answer["called_us"]:
                            outcomes[index].called_us.append(answer["called_us"])
        finally:
            for process in processes.values():
                process.close()
    return outcomes


def known(outcomes: Sequence[Outcome], half_width: float) -> bool:
    """Return whether the ratio of the fastest contender to each other one is known well enough.

    Args:
        outcomes: As they are after a round; those that failed do not count.
        half_width: No interval may reach farther to each side, on average. A ratio is at most about 1, so that a slow
            contender, of which nobody asks, need not be known as well as one that is nearly the fastest.

    Examples:
        >>> steady, noisy = ([[100.0], [101.0], [100.0], [101.0]], [[100.0], [90.0], [120.0], [100.0]])
        >>> outcomes = [Outcome(contender=None, rounds_us=rounds) for rounds in (steady, noisy)]
        >>> known(outcomes, 0.02), known([outcomes[0], outcomes[0]], 0.02)
        (False, True)
    """
    for ran in ([each.rounds_us for each in outcomes], [each.called_us for each in outcomes]):
        times = [rounds for rounds in ran if rounds]
        fastest = min(times, key=lambda rounds: np.median([np.median(samples) for samples in rounds]), default=[])
        for rounds in times:
            ratio = paired_ratio(fastest, rounds)
            if not decides(ratio.low, ratio.high, half_width):
                return False
    return True


def _fail(outcome: Outcome, process: ContenderProcess, reason: str) -> None:
    outcome.failed = reason
    outcome.rounds_us, outcome.called_us = [], []
    process.close()
