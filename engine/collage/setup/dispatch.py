"""What the runtime's loop adds to every kernel, measured once per machine on the loop itself."""

from __future__ import annotations

import math
import time

from collage.runtime.bound_run import BoundRun
from collage.runtime.kernels.launching import BoundStep
from collage.store import TuningStore
from collage_core.contract import Host

_KERNELS = 256
_RUNS = 200


def dispatch_us(database: TuningStore, host: Host) -> float:
    """Microseconds per kernel; from the database if it is known there."""
    name = f"dispatch/{host.fingerprint}"
    known = (database.get_plan(name) or {}).get("dispatch_us")
    if isinstance(known, int | float) and 0 <= known < math.inf:
        return float(known)
    measured = _measured_us()
    database.put_plan(name, {"dispatch_us": measured})
    return measured


def _measured_us() -> float:
    """Fastest of many runs of a loop over calls that do nothing: what is left is the loop."""
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
