"""Time whole models against each other: each in a fresh process, taking turns.

A contender that is merely loaded can slow the others, and a machine's speed varies from minute to minute. So each
contender has its own process, and all run in every round, one after another.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeAlias

from collage.errors import WireError, WorkerError
from collage.measure.contenders.repeating import Repeating
from collage.measure.driver import memory
from collage.measure.driver.child import ChildProcess
from collage.measure.wire.codec import Codec
from collage.measure.wire.messages import AskBurst, AskPrepare, Burst, Hello, Message, Prepared
from collage.measure.wire.outcomes import Failed, Stage
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Json

Rounds: TypeAlias = tuple[tuple[float, ...], ...]
"""Microseconds of each run, by round."""

DEADLINE_S = 300.0
"""Seconds after which a contender that does not answer is killed."""

_LOADERS = 2
"""Number of contenders that load at the same time. Nothing is timed yet, and loading leaves cores idle."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A call to time.

    Attributes:
        name: Unique among those compared.
        call: `module:attribute` of a function that returns a call without arguments. Its attribute `as_called`, if it
            has one, is the same run as users call it; `parts`, if it has them, are the calls that it makes, by name;
            `stream`, if it has that, makes another call that may run beside it; `cycle`, if it has that, is a number
            of runs that differ, after which they begin again: of each kind as many are timed.
        arguments: The function's keyword arguments, as JSON.
        paths: Extra folders on the module search path.
    """

    name: str
    call: str
    arguments: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    paths: tuple[str, ...] = ()


def took_too_long(failed: Failed) -> bool:
    """Return whether a contender's process was killed at its deadline."""
    return failed.reason.startswith("deadline: ")  # `WorkerError.kind`


class ContenderProcess:
    """The running process of a contender; a failure ends it.

    Args:
        contender: The contender to run.
    """

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self._codec = Codec()
        self._requests = 0
        # it is killed, so it cannot clear up what it keeps in temporary files
        self._scratch = TemporaryFolder("contender")
        self._child: ChildProcess | WorkerError
        try:
            self._child = ChildProcess(
                contender.name, "collage.measure.contenders.contender_main", [], {"TMPDIR": str(self._scratch.path)}
            )
        except WorkerError as error:
            self._child = error
        except BaseException:
            self._scratch.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, deadline_s: float, *, at_a_time: int = 1) -> Prepared | Failed:
        """Load the contender's call and run it once.

        Args:
            deadline_s: Seconds after which the process is killed.
            at_a_time: Number of contenders loading at that time, this one included; they share the free memory.
        """
        ask = AskPrepare(call=self.contender.call, arguments=dict(self.contender.arguments), paths=self.contender.paths)
        answer: Prepared | Failed = self._ask(ask, deadline_s, Stage.LOAD, Prepared, at_a_time)
        return answer

    def burst(
        self,
        *,
        duration_s: float,
        min_runs: int,
        warmup_s: float,
        deadline_s: float,
        as_called: bool = False,
        in_parts: bool = False,
        calibration_threads: int = 0,
        streams: int = 1,
    ) -> Burst | Failed:
        """Run the call for a while and return what was timed; see `AskBurst`."""
        ask = AskBurst(
            duration_s=duration_s,
            min_runs=min_runs,
            warmup_s=warmup_s,
            as_called=as_called,
            in_parts=in_parts,
            calibration_threads=calibration_threads,
            streams=streams,
        )
        answer: Burst | Failed = self._ask(ask, deadline_s, Stage.RUN, Burst)
        return answer

    def close(self) -> None:
        """Kill the process and remove its temporary files."""
        if isinstance(self._child, ChildProcess):
            self._child.kill()
        self._scratch.close()

    def _ask(self, message: Message, deadline_s: float, stage: Stage, expected: type, at_a_time: int = 1) -> Any:
        try:
            if isinstance(self._child, WorkerError):
                raise self._child
            deadline = self._child.deadline(deadline_s)
            # several processes are alive, each as large as it became: what is free now is all that any may add
            self._child.limit_bytes = self._child.held_bytes + memory.limit_bytes() // at_a_time
            if self._requests == 0 and not isinstance(self._codec.decode(self._child.receive(deadline)), Hello):
                raise WireError("its first words were not Hello")
            self._requests += 1
            self._child.send(self._codec.encode(message, self._requests), deadline)
            frame = self._child.receive(deadline)
            answer = self._codec.decode(frame)
            if frame.id != self._requests or not isinstance(answer, (expected, Failed)):
                raise WireError(f"it answered with {type(answer).__name__}")
        except WorkerError as error:
            return Failed(stage=stage, reason=f"{error.kind}: {error.reason}")
        except WireError as error:
            self.close()
            return Failed(stage=stage, reason=str(error))
        except BaseException:
            self.close()
            raise
        return answer


def interleaved(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    burst_s: float,
    min_runs: int = 2,
    warmup_s: float = 0.015,
    settle_s: float = 0.06,
    deadline_s: float = DEADLINE_S,
    first_round: int = 0,
    as_called: bool = False,
    in_parts: bool = False,
    calibration_threads: int = 0,
    streams: int = 1,
    progress: Callable[[int, int], None] | None = None,
    on_burst: Callable[[str, Burst], None] | None = None,
    leaving: Callable[[Mapping[str, Rounds]], Collection[str]] | None = None,
    repeating: Repeating | None = None,
) -> dict[str, Rounds | Failed]:
    """Time contenders in turns, in an order that is shuffled in each round. They are started in shuffled order, too.

    Many short turns are more informative than a few long ones: load on a shared machine affects two contenders
    equally only if they run within some tenths of a second of each other.

    Args:
        contenders: Contenders to time; names are unique.
        rounds: Number of turns of each contender.
        burst_s: Minimum seconds of samples in a turn.
        min_runs: Minimum number of samples in a turn.
        warmup_s: Seconds of untimed runs before a turn's samples, at least one run.
        settle_s: Pause before a turn. With the warm-up it outlasts the spinning of the previous contender's idle
            threads: ONNX Runtime's spin for 2^20 pauses, about 60 ms (`EigenNonBlockingThreadPool.h`). After a pause
            of 20 ms alone ResNet-50 took 27 % longer.
        deadline_s: Seconds after which a contender that does not answer is killed, for loading and for each turn.
        first_round: Number of earlier rounds in the same comparison; each round has its own order.
        as_called: Whether runs as users call them are made, too, in half of each turn, where a contender has them.
        in_parts: As in `AskBurst`.
        calibration_threads: As in `AskBurst`.
        streams: As in `AskBurst`.
        progress: Called with the number of finished bursts and their total.
        on_burst: Called after each turn with a contender's name and all that was timed in it.
        leaving: Called after each round with the samples so far; returns the names of those that leave.
        repeating: Takes turns again in which others had the processors; each turn is taken once if None.

    Returns:
        By name, the samples by round, or why there are none. Round `i` of all contenders ran together; those that left
        have fewer.

    Raises:
        ValueError: If two contenders have the same name.
    """
    if len({contender.name for contender in contenders}) != len(contenders):
        raise ValueError("contenders need different names")
    found: dict[str, list[tuple[float, ...]]] = {}
    processes: dict[str, ContenderProcess] = {}
    done, total = 0, rounds * len(contenders)
    loaders = ThreadPoolExecutor(_LOADERS)
    try:
        for contender in random.Random(f"start {first_round} {contenders}").sample(contenders, len(contenders)):
            processes[contender.name] = ContenderProcess(contender)
        beside = min(_LOADERS, len(contenders))
        answers = loaders.map(lambda process: process.prepare(deadline_s, at_a_time=beside), processes.values())
        loaded = dict(zip(processes, answers, strict=True))
        failed = {name: answer for name, answer in loaded.items() if isinstance(answer, Failed)}
        left: set[str] = set()
        for index in range(first_round, first_round + rounds):
            for contender in random.Random(index).sample(contenders, len(contenders)):
                done += 1
                if contender.name not in failed and contender.name not in left:
                    turn = functools.partial(
                        processes[contender.name].burst,
                        duration_s=burst_s,
                        min_runs=min_runs,
                        warmup_s=warmup_s,
                        deadline_s=deadline_s,
                        as_called=as_called,
                        in_parts=in_parts,
                        calibration_threads=calibration_threads,
                        streams=streams,
                    )
                    time.sleep(settle_s)
                    burst = turn() if repeating is None else repeating(turn)
                    if isinstance(burst, Failed):
                        failed[contender.name] = burst
                    else:
                        found.setdefault(contender.name, []).append(burst.samples_us)
                        if on_burst is not None:
                            on_burst(contender.name, burst)
                if progress is not None:
                    progress(done, total)
            if leaving is not None:
                left.update(leaving({name: tuple(each) for name, each in found.items() if name not in failed}))
    finally:
        for process in processes.values():
            process.close()
        loaders.shutdown(cancel_futures=True)
    return {c.name: failed.get(c.name) or tuple(found.get(c.name, ())) for c in contenders}
