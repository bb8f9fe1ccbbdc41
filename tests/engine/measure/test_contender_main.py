"""A contender's turn: how often it calls what it times."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from collage.measure.clocks.other_load import OtherLoad
from collage.measure.contenders.contender_main import ContenderMain
from collage.measure.wire.messages import AskBurst, Burst
from collage.measure.wire.outcomes import Failed


class Counted(functools.partial[Any]):
    """A call with another way to call it, as packages have."""

    as_called: Callable[[], Any]
    stream: Callable[[], Callable[[], Any]]


@pytest.mark.parametrize(("call_s", "untimed"), [(0.0, 1), (0.03, 0)])
def test_a_long_run_need_not_be_warmed_up_for_again_before_it_is_timed_as_users_call_it(
    call_s: float, untimed: int
) -> None:
    calls: list[int] = []
    contender = ContenderMain()
    contender._call = call = Counted(time.sleep, call_s)
    call.as_called = lambda: calls.append(1)
    ask = AskBurst(duration_s=0.0, min_runs=2, warmup_s=0.02, as_called=True, in_parts=False, calibration_threads=0)

    burst = contender.answer(ask)

    assert isinstance(burst, Burst)
    assert len(burst.called_us) == 2
    assert len(calls) == 2 + untimed


@pytest.mark.parametrize("call_s", [0.0, 0.002])
def test_each_turn_begins_with_an_untimed_run_however_long_it_takes(call_s: float) -> None:
    calls: list[float] = []
    contender = ContenderMain()

    def call() -> None:
        calls.append(call_s)
        time.sleep(call_s)

    contender._call = call
    ask = AskBurst(duration_s=0.0, min_runs=2, warmup_s=call_s / 2)

    for turn in (1, 2):
        burst = contender.answer(ask)
        assert isinstance(burst, Burst)
        assert len(burst.samples_us) == 2
        assert len(calls) == turn * 3


class Turns:
    """A call whose runs differ, and begin again after three."""

    cycle = 3

    def __init__(self) -> None:
        self.runs: list[int] = []

    def __call__(self) -> None:
        self.runs.append(len(self.runs) % self.cycle)


@pytest.mark.parametrize("least", [1, 3, 4])
def test_of_a_call_whose_runs_differ_as_many_of_each_kind_are_timed_wherever_they_begin(least: int) -> None:
    contender = ContenderMain()
    contender._call = call = Turns()
    ask = AskBurst(duration_s=0.0, min_runs=least, warmup_s=0.0)

    for _ in range(3):
        before = len(call.runs) + 1  # and one to warm up
        burst = contender.answer(ask)

        assert isinstance(burst, Burst)
        timed = call.runs[before:]
        assert len(burst.samples_us) == len(timed) >= least
        assert len({timed.count(kind) for kind in range(3)}) == 1


def asking(streams: int) -> AskBurst:
    return AskBurst(duration_s=0.05, min_runs=1, warmup_s=0.0, streams=streams)


def test_streams_run_side_by_side_each_a_call_of_its_own() -> None:
    """A run waits a second for one of the other stream: one after the other they would never meet."""
    together = threading.Barrier(2)
    made: list[int] = []
    met: list[int] = []
    contender = ContenderMain()
    contender._call = call = Counted(time.sleep, 0.0)

    def stream() -> Callable[[], Any]:
        made.append(1)
        runs = itertools.count()

        def run() -> None:
            if next(runs):  # the first is not timed, and alone
                with contextlib.suppress(threading.BrokenBarrierError):  # the other has ended
                    met.append(together.wait(timeout=1))

        return run

    call.stream = stream

    burst = contender.answer(asking(2))

    assert isinstance(burst, Burst)
    assert len(made) == 2
    assert {0, 1} <= set(met)
    assert burst.per_s > 0


@pytest.mark.parametrize("streams", [1, 2])
def test_there_is_no_throughput_of_one_stream_or_of_a_call_that_has_no_further_ones(streams: int) -> None:
    contender = ContenderMain()
    contender._call = Counted(time.sleep, 0.0)

    burst = contender.answer(asking(streams))

    assert isinstance(burst, Burst)
    assert burst.per_s == 0.0


def test_a_stream_that_fails_fails_the_contender() -> None:
    contender = ContenderMain()
    contender._call = call = Counted(time.sleep, 0.0)
    runs = iter([None, ValueError("the second run")])

    def fail() -> None:
        if (error := next(runs, None)) is not None:
            raise error

    call.stream = lambda: fail

    failed = contender.answer(asking(2))

    assert isinstance(failed, Failed)
    assert failed.reason == "ValueError: the second run"


def test_a_turn_tells_how_many_processors_others_had_after_the_warm_up_and_before_streams() -> None:
    order: list[str] = []

    class Noted(OtherLoad):
        def begin(self) -> None:
            order.append("begin")

        def end(self) -> float:
            order.append("end")
            return 0.75

    contender = ContenderMain()
    contender._others = Noted()
    contender._call = call = Counted(lambda: order.append("run"))
    call.as_called = lambda: order.append("called")
    call.stream = lambda: lambda: order.append("stream")
    order.clear()

    ask = AskBurst(duration_s=0.0, min_runs=1, warmup_s=0.0, as_called=True, streams=2)
    burst = contender.answer(ask)

    assert isinstance(burst, Burst)
    assert burst.others_had == 0.75
    assert order[:5] == ["run", "begin", "run", "called", "end"]
    assert set(order[5:]) == {"stream"}
