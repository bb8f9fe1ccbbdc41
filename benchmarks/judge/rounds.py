"""Runs contenders against each other: one process each, one burst each per round."""

from __future__ import annotations

import dataclasses
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.judge.contender import Contender
from benchmarks.judge.process import ContenderError, ContenderProcess
from benchmarks.judge.statistics import disagreement


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Timing protocol of contenders.

    Attributes:
        threads: Threads each contender may use.
        rounds: Rounds that count; a warm-up round precedes them.
        seconds: Least duration of a burst, in seconds; a burst has at least `min_runs` runs.
        min_runs: See `seconds`.
        warmup_s: Duration of untimed runs before a burst, at least one run, since other contenders used the caches.
        settle_s: Pause before a burst. With the warm-up it outlasts the spinning threads of the previous contender:
            those of ONNX Runtime spin for about 60 ms.
        deadline_s: Time limit for setting up, and for a burst.
    """

    threads: int
    rounds: int = 60
    seconds: float = 0.08
    min_runs: int = 2
    warmup_s: float = 0.04
    settle_s: float = 0.02
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        if self.threads < 1 or self.rounds < 1 or self.min_runs < 1:
            raise ValueError("threads, rounds and min_runs must be at least 1")


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

            for turn in range(protocol.rounds + 1):
                tell(f"round {turn} of {protocol.rounds}")
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


def _fail(outcome: Outcome, process: ContenderProcess, reason: str) -> None:
    outcome.failed = reason
    outcome.rounds_us, outcome.called_us = [], []
    process.close()
