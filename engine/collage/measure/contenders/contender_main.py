"""The process of one contender: `python -m collage.measure.contenders.contender_main`.

It prepares the call requested by the driver and runs it in bursts; it knows nothing about the call itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from collage.errors import WireError
from collage.measure.clocks.calibration import Calibration
from collage.measure.clocks.other_load import OtherLoad
from collage.measure.wire.channel import Channel, prepare_process
from collage.measure.wire.messages import AskBurst, AskPrepare, Burst, Hello, Message, Prepared
from collage.measure.wire.outcomes import Failed, Stage
from collage_core.error_text import one_line


class ContenderMain:
    """Answers the driver's requests."""

    def __init__(self) -> None:
        self._call: Callable[[], Any] | None = None
        self._calibration: Calibration | None = None
        self._others = OtherLoad()
        self._streams: list[Callable[[], Any]] = []

    def answer(self, message: Message) -> Message:
        """Answer one request.

        Raises:
            WireError: If the request is invalid in this state.
        """
        match message:
            case AskPrepare():
                try:
                    return self._prepare(message)
                except Exception as error:  # whatever the contender raises is its failure
                    return Failed(stage=Stage.LOAD, reason=one_line(error))
            case AskBurst() if self._call is not None:
                try:
                    return self._burst(self._call, message)
                except Exception as error:
                    return Failed(stage=Stage.RUN, reason=one_line(error))
        raise WireError(f"{type(message).__name__} makes no sense to a contender now")

    def _prepare(self, ask: AskPrepare) -> Prepared:
        sys.path[:0] = ask.paths
        module, _, attribute = ask.call.partition(":")
        self._call = getattr(importlib.import_module(module), attribute)(**ask.arguments)
        assert self._call is not None
        gc.freeze()  # what is loaded stays; collecting before each burst need not walk it
        if not getattr(self._call, "has_run", False):
            self._call()
        return Prepared()

    def _burst(self, call: Callable[[], Any], ask: AskBurst) -> Burst:
        if ask.calibration_threads and self._calibration is None:
            self._calibration = Calibration(ask.calibration_threads)
        calibrate = self._calibration if ask.calibration_threads else None
        as_called = getattr(call, "as_called", None) if ask.as_called else None
        if as_called is not None:
            ask = dataclasses.replace(ask, duration_s=ask.duration_s / 2)
        gc.collect()
        gc.disable()
        try:
            before_us = 0.0 if calibrate is None else calibrate()
            # the contender before may spin until this one is warm
            samples = _samples(call, ask, ask.warmup_s, self._others.begin)
            parts = getattr(call, "parts", None) if ask.in_parts else None
            parts_us = {} if parts is None else _parts(parts, ask)
            after_us = 0.0 if calibrate is None else calibrate()
            warmup_s = 0.0 if statistics.median(samples) < ask.warmup_s * 1e6 else None  # a long run warmed up for both
            called = () if as_called is None else _samples(as_called, ask, warmup_s)
            others_had = self._others.end()
            per_s = _runs_per_s(self._side_by_side(call, ask.streams), ask.duration_s)
            return Burst(
                samples_us=samples,
                called_us=called,
                parts_us=parts_us,
                calibration_us=(before_us + after_us) / 2,
                per_s=per_s,
                others_had=others_had,
            )
        finally:
            gc.enable()

    def _side_by_side(self, call: Callable[[], Any], streams: int) -> list[Callable[[], Any]]:
        """Return calls that may run at the same time; none if the contender has no further ones."""
        stream = getattr(call, "stream", None)
        if streams < 2 or stream is None:
            return []
        while len(self._streams) < streams:
            self._streams.append(stream())
            self._streams[-1]()  # its first run is not timed
        return self._streams[:streams]


def _samples(
    call: Callable[[], Any], ask: AskBurst, warmup_s: float | None, when_warm: Callable[[], object] = lambda: None
) -> tuple[float, ...]:
    """Time runs of a call; what one returns is kept until the next has returned, as in a loop that uses its results.

    Args:
        call: The call; of one whose runs differ whole cycles are timed, so that contenders are compared in the same.
        ask: How long and how often.
        warmup_s: Seconds of untimed runs, at least one; None for no run.
        when_warm: Called after these.
    """
    clock = time.perf_counter_ns
    kept = None
    if warmup_s is not None:
        warm = clock() + round(warmup_s * 1e9)
        while True:
            kept = call()
            if clock() >= warm:
                break
    when_warm()
    samples: list[float] = []
    end, cycle = clock() + round(ask.duration_s * 1e9), getattr(call, "cycle", 1)
    while True:
        began = clock()
        kept = call()  # noqa: F841  the one before ends here
        now = clock()
        samples.append((now - began) / 1e3)
        if now >= end and len(samples) >= ask.min_runs and len(samples) % cycle == 0:
            return tuple(samples)


def _runs_per_s(calls: Sequence[Callable[[], Any]], duration_s: float) -> float:
    """Run calls side by side, each in a thread, at least once; return how many runs they make in a second together.

    Args:
        calls: The calls; 0 is returned if there is none.
        duration_s: Seconds to run for.
    """
    if not calls:
        return 0.0
    begin = threading.Barrier(len(calls) + 1)

    def stream(call: Callable[[], Any]) -> int:
        runs = 0
        begin.wait()
        end = time.perf_counter() + duration_s
        while not runs or time.perf_counter() < end:
            call()
            runs += 1
        return runs

    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(stream, call) for call in calls]
        begin.wait()
        began = time.perf_counter()
        runs = sum(each.result() for each in running)
        return runs / (time.perf_counter() - began)


def _parts(parts: Mapping[str, Callable[[], Any]], ask: AskBurst) -> dict[str, float]:
    """Time the steps of runs, one after another as in a run; return each one's median in microseconds."""
    clock = time.perf_counter_ns
    samples: dict[str, list[float]] = {name: [] for name in parts}
    end, runs = clock() + round(ask.duration_s * 1e9), 0
    while runs < ask.min_runs or clock() < end:
        for name, part in parts.items():
            began = clock()
            part()
            samples[name].append((clock() - began) / 1e3)
        runs += 1
    return {name: statistics.median(each) for name, each in samples.items()}


def main() -> None:
    """Run the contender until the driver exits."""
    parser = argparse.ArgumentParser(prog="python -m collage.measure.contenders.contender_main", description=__doc__)
    parser.add_argument("--kernel-kills", action="store_true")
    options = parser.parse_args()
    prepare_process(kernel_kills=options.kernel_kills)
    channel = Channel.take_standard_streams()
    channel.die_with_driver()
    contender = ContenderMain()
    channel.send(channel.codec.encode(Hello(toolchain=""), 0))
    while (frame := channel.receive()) is not None:
        channel.send(channel.codec.encode(contender.answer(channel.codec.decode(frame)), frame.id))


if __name__ == "__main__":
    main()
