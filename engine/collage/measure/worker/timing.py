"""Core's clock for a candidate's call: the host's, or the device's over copies of its weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from collage.measure.clocks.calibration import Calibration
from collage.measure.clocks.clock import time_call
from collage.measure.clocks.device_clock import time_on_device
from collage.measure.clocks.displacing import Displacement
from collage.measure.clocks.disturbance import Observer
from collage.measure.clocks.load_wait import LoadWait
from collage.measure.clocks.rotation import rotated, weights_bytes_of
from collage.measure.wire.messages import AskMeasure
from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.kernel_loading import KernelLoading
from collage_core.contract import (
    Artifact,
    BoundCall,
    DeviceStream,
    KernelFunction,
    Measurement,
    Unsupported,
    workspace_of,
)

_WAITS_S: Final = 45.0
"""Seconds that candidates of this process wait for other load in all: as long as they may run by default."""


@functools.cache
def observer_of(threads: int) -> Observer:
    """Return what looks at the host, one for all candidates of this process: it remembers what it saw.

    Args:
        threads: Those of its calibration kernel.
    """
    return Observer(Calibration(threads))


@functools.cache
def load_wait_of(threads: int, most_s: float) -> LoadWait:
    """Return what waits until other load is gone, one for all candidates of this process: it knows of a lasting one.

    Args:
        threads: Those that candidates may use.
        most_s: Seconds that a load is waited for at most; 0 for not at all.
    """
    return LoadWait(threads, most_s, _WAITS_S)


def clock_of(
    bound: Bound,
    artifact: Artifact,
    function: KernelFunction,
    loading: KernelLoading,
    ask: AskMeasure,
    *,
    observed: bool,
) -> Callable[[], Measurement]:
    """Return the clock: the host's, or the device's over graphs of the call where a plan would capture it.

    Args:
        bound: The call, after it was checked.
        artifact: What it was made of.
        function: The candidate.
        loading: Loads further kernels of it.
        ask: Says for which target, how long and how often to time it, and what a plan does besides.
        observed: Whether samples are taken in blocks between which the host is looked at; on a device they never are.
    """
    device, target = loading.device(), ask.target
    if device is None:
        beside = ask.bytes_beside
        between = Displacement(beside, bound.inputs, ask.build.threads) if beside else None
        observe = observer_of(ask.build.threads) if observed else None
        wait = load_wait_of(ask.build.threads, ask.load_wait_s)
        return functools.partial(time_call, bound.call, ask.protocol, observe=observe, between=between, wait=wait)
    graph = target.launch == "graph"
    why_not = "" if artifact.capturable or not graph else "its artifact is not capturable"

    def timed() -> Measurement:
        calls = _rotated(bound, artifact, function, loading, device) if ask.cold else [bound.call]
        return time_on_device(device, calls, ask.protocol, graph=graph, why_not=why_not)

    return timed


def _rotated(
    bound: Bound, artifact: Artifact, function: KernelFunction, loading: KernelLoading, device: DeviceStream
) -> list[BoundCall]:
    """Return the call, and others of the same kernel on copies of its weights of their own."""
    staged = bound.staged
    assert staged is not None

    def another() -> BoundCall | None:
        kernel = loading.loaded(artifact)
        return None if isinstance(kernel, Unsupported) else staged.bind(kernel, workspace_of(artifact, kernel))

    return rotated(bound.call, another, weights_bytes_of(function, artifact), device)
