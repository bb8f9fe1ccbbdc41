"""Core's clock for a candidate's call: the host's, or the device's over copies of its weights."""

from __future__ import annotations

import functools
from collections.abc import Callable

from collage.measure.clocks.calibration import Calibration
from collage.measure.clocks.clock import time_call
from collage.measure.clocks.device_clock import time_on_device
from collage.measure.clocks.displacing import Displacement
from collage.measure.clocks.rotation import rotated, weights_bytes_of
from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.kernel_loading import KernelLoading
from collage_core.contract import (
    Artifact,
    BoundCall,
    DeviceStream,
    KernelFunction,
    Measurement,
    Protocol,
    Target,
    Unsupported,
    workspace_of,
)


def clock_of(
    bound: Bound,
    artifact: Artifact,
    function: KernelFunction,
    target: Target,
    loading: KernelLoading,
    protocol: Protocol,
    *,
    cold: bool,
    bytes_beside: int,
    calibration_threads: int,
) -> Callable[[], Measurement]:
    """Return the clock: the host's, or the device's over graphs of the call where a plan would capture it.

    Args:
        bound: The call, after it was checked.
        artifact: What it was made of.
        function: The candidate.
        target: Its target.
        loading: Loads further kernels of it.
        protocol: How long and how often to time it.
        cold: Whether a plan finds the device's cache without its weights; then copies of them are read in turn.
        bytes_beside: Memory that other kernels of a plan touch between two calls, on the host; 0 if there are none.
        calibration_threads: Threads of the calibration kernel, which runs on the host only; 0 to run none.
    """
    device = loading.device()
    if device is None:
        calibrate = Calibration(calibration_threads) if calibration_threads else None
        between = Displacement(bytes_beside, bound.inputs, max(1, calibration_threads)) if bytes_beside else None
        return functools.partial(time_call, bound.call, protocol, calibrate=calibrate, between=between)
    graph = target.launch == "graph"
    why_not = "" if artifact.capturable or not graph else "its artifact is not capturable"

    def timed() -> Measurement:
        calls = _rotated(bound, artifact, function, loading, device) if cold else [bound.call]
        return time_on_device(device, calls, protocol, graph=graph, why_not=why_not)

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
