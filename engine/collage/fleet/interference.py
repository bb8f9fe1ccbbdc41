"""Whether leases on one machine slow each other: measured, before costs are taken there side by side."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from collage.fleet.jobs import AskInterference, Interference, from_bytes, to_bytes
from collage_core.contract import Job, Runner
from collage_core.errors import RunnerError

MOST: Final = 1.03
"""Largest slowdown by work in other leases: as large as what plans are told apart by."""
_ROUNDS: Final = 3
_TRIES: Final = 6
_DURATION_S: Final = 0.7
_LONGEST_S: Final = 5.0
_LEAST_RUNS: Final = 5


def slowdown(runner: Runner, name: str, leases: Sequence[str], cores: int, devices: int = 0) -> float | None:
    """Return what fixed work in one lease takes beside the same work in the others, over what it takes alone.

    Args:
        runner: Has the machine.
        name: What the user calls it.
        leases: The machine's name, or those of its parts, once for each lease.
        cores: Physical cores of a lease.
        devices: Devices of a lease.

    Returns:
        The ratio; None if the leases do not work at once, or too slowly to tell.

    Raises:
        RunnerError: If a machine is lost meanwhile, or answers something else.
    """
    work = _Work(runner, name, cores, devices)
    duration_s, ratios = _DURATION_S, list[float]()
    for _ in range(_TRIES):
        beside = work.done(leases, duration_s)
        [alone] = work.done(leases[:1], duration_s)
        begin = max(began for runs in beside for began, _ in runs[:1])
        end = min(began + took for runs in beside for began, took in runs[-1:])
        together = [took for began, took in beside[0] if began >= begin and began + took <= end]
        if min(len(alone), len(together)) < _LEAST_RUNS:
            duration_s = min(2 * duration_s, _LONGEST_S)  # leases that are new take a while to begin
            continue
        ratios.append(statistics.median(together) / statistics.median(took for _, took in alone))
        if len(ratios) == _ROUNDS:
            return statistics.median(ratios)
    return None


class _Work:
    """Runs the work in leases of a machine."""

    def __init__(self, runner: Runner, name: str, cores: int, devices: int) -> None:
        self._runner = runner
        self._name = name
        self._cores = cores
        self._devices = devices

    def done(self, leases: Sequence[str], duration_s: float) -> list[tuple[tuple[float, float], ...]]:
        """Run it in leases at once; return its runs in each."""
        body = to_bytes(AskInterference(threads=self._cores, duration_s=duration_s))
        jobs = [
            self._runner.submit(Job(host=host, cores=self._cores, devices=self._devices, body=body), _nothing)
            for host in leases
        ]
        found = []
        for job in jobs:
            answer = from_bytes(job.result().body)
            if not isinstance(answer, Interference) or not answer.runs:
                raise RunnerError(self._name, f"a machine answered with {type(answer).__name__}")
            found.append(answer.runs)
        return found


def _nothing(blob: str) -> bytes:
    raise KeyError(blob)
