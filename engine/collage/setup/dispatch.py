"""Measure the runtime loop's overhead per kernel, once per machine, on the loop itself."""

from __future__ import annotations

import dataclasses
import time
from typing import ClassVar

from collage.runtime.bound_run import BoundRun
from collage.runtime.kernels.launching import BoundStep
from collage.store import TuningStore
from collage_core.contract import Host

_KERNELS = 256
_RUNS = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTime:
    """What the loop adds on a machine.

    Attributes:
        dispatch_us: Microseconds per kernel.
    """

    KIND: ClassVar[str] = "dispatch"
    VERSION: ClassVar[int] = 1

    dispatch_us: float

    def __post_init__(self) -> None:
        if self.dispatch_us < 0:
            raise ValueError(f"{self.dispatch_us} us is no time")


def dispatch_us(database: TuningStore, host: Host) -> float:
    """Return the microseconds per kernel; from the database if they are known there."""
    known = database.get_document(DispatchTime, host.fingerprint)
    if known is None:
        known = database.keep_first(host.fingerprint, DispatchTime(dispatch_us=_measured_us()))
    return known.dispatch_us


def _measured_us() -> float:
    """Measure the loop alone: the fastest of many runs over calls that do nothing, per call."""
    steps = [BoundStep(name=f"k{i}", target="", nodes=(), call=_nothing) for i in range(_KERNELS)]
    call = BoundRun(steps=steps, inputs={}, outputs={}, order=[]).call
    fastest = float("inf")
    for _ in range(_RUNS):
        began = time.perf_counter_ns()
        call()
        fastest = min(fastest, time.perf_counter_ns() - began)
    return fastest / 1000 / _KERNELS


def _nothing() -> None:
    pass
