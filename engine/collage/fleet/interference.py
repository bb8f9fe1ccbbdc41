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
_DURATION_S: Final = 0.7
_LEAST_RUNS: Final = 5


def slowdown(runner: Runner, name: str, leases: Sequence[str], cores: int) -> float:
    """Return what fixed work in one lease takes beside the same work in the others, over what it takes alone.

    Args:
        runner: Has the machine.
        name: What the user calls it.
        leases: The machine's name, or those of its parts, once for each lease.
        cores: Physical cores of a lease.

    Raises:
        RunnerError: If it cannot be measured.
    """
    ratios = []
    for _ in range(_ROUNDS):
        [alone] = _worked(runner, name, leases[:1], cores)
        beside = _worked(runner, name, leases, cores)
        begin = max(began for runs in beside for began, _ in runs[:1])
        end = min(began + took for runs in beside for began, took in runs[-1:])
        together = [took for began, took in beside[0] if began >= begin and began + took <= end]
        if min(len(alone), len(together)) < _LEAST_RUNS:
            raise RunnerError(name, f"{leases[0]} is too slow to tell whether leases there slow each other")
        ratios.append(statistics.median(together) / statistics.median(took for _, took in alone))
    return statistics.median(ratios)


def _worked(runner: Runner, name: str, leases: Sequence[str], cores: int) -> list[tuple[tuple[float, float], ...]]:
    """Run the work in leases at once; return its runs in each."""
    body = to_bytes(AskInterference(threads=cores, duration_s=_DURATION_S))
    jobs = [runner.submit(Job(host=host, cores=cores, body=body), _nothing) for host in leases]
    found = []
    for job in jobs:
        answer = from_bytes(job.result().body)
        if not isinstance(answer, Interference) or not answer.runs:
            raise RunnerError(name, f"a machine answered with {type(answer).__name__}")
        found.append(answer.runs)
    return found


def _nothing(blob: str) -> bytes:
    raise KeyError(blob)
