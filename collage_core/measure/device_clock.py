"""Core's clock for calls of a device: its own, by events, over a graph of many calls or one call after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from collage_core.contract import BoundCall, Measurement, Protocol
from collage_core.device import DeviceStream
from collage_core.errors import DeviceLostError

_MOST_CALLS = 1000


def time_on_device(
    device: DeviceStream,
    call: BoundCall,
    protocol: Protocol,
    *,
    graph: bool,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Measurement:
    """Times a call that enqueues, launched as a plan launches it.

    As a graph, a sample is one launch of a graph of as many calls as take `protocol.min_sample_us`: what stands between
    two kernels of a captured stretch is in it, what launching the stretch costs the host is not. Otherwise, or where
    it cannot be captured, the calls are enqueued one by one: a kernel shorter than its own launch then costs that.

    Args:
        device: Where it enqueues.
        call: Leaves nothing behind, so that it can be repeated.
        protocol: How long and how often.
        graph: Whether a plan would capture it.
        clock_ns: A monotonic clock, which says when to stop.

    Raises:
        DeviceError: If the device fails.
    """
    before, after = device.event(), device.event()

    def sample_us(enqueue: BoundCall) -> float:
        before.record()
        enqueue()
        after.record()
        device.synchronise()
        return after.elapsed_us(before)

    runs, fastest = 0, math.inf
    end = clock_ns() + round(protocol.warmup_s * 1e9)
    while runs < protocol.warmup_runs or clock_ns() < end:
        fastest = min(fastest, sample_us(call))
        runs += 1
    calls = min(_MOST_CALLS, max(1, math.ceil(protocol.min_sample_us / max(fastest, 1e-2))))

    def many() -> None:
        for _ in range(calls):
            call()

    enqueue = many
    if graph:
        try:
            enqueue = device.capture(many).launch
            sample_us(enqueue)  # the first launch of a graph also sends it to the device
        except DeviceLostError:
            raise
        except Exception:  # as a plan does, see runtime/launching.py
            enqueue = many
    samples: list[float] = []
    end = clock_ns() + round(protocol.duration_s * 1e9)
    while True:
        samples.append(sample_us(enqueue) / calls)
        if len(samples) >= protocol.max_samples or (len(samples) >= protocol.min_samples and clock_ns() >= end):
            return Measurement(samples_us=tuple(samples), warmup_runs=runs, calls_per_sample=calls)
