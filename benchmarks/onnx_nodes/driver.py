"""Run the cases in worker processes; one that crashes or hangs loses only its own case."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.onnx_nodes.cases import Outcome
from collage_testing.kit.isolated import IsolatedProcess, Lost

ROOT = Path(__file__).parents[2]
CASES_PER_PROCESS = 400
"""Cases until a process is replaced, so that leaks over a thousand models do not affect the results."""


def run_cases(backend: str, names: Sequence[str], limit_s: float) -> Iterator[Outcome]:
    """Run cases in order and yield their outcomes.

    Args:
        backend: `"collage"`, `"onnxruntime"` or `"reference"`.
        names: Names of the cases.
        limit_s: Time limit of each case, in seconds.
    """
    worker: IsolatedProcess | None = None
    try:
        for name in names:
            if worker is not None and (not worker.alive or worker.asked >= CASES_PER_PROCESS):
                worker.close()
                worker = None
            if worker is None:
                worker = IsolatedProcess("benchmarks.onnx_nodes.worker", [backend], folder=ROOT)
            began = time.monotonic()
            answer = worker.ask(name, limit_s)
            if isinstance(answer, Lost):
                seconds = time.monotonic() - began
                yield Outcome(name=name, status=answer.kind, reason=answer.reason, seconds=seconds)
            else:
                yield Outcome(**{**answer, "toolchains": tuple(answer["toolchains"])})
    finally:
        if worker is not None:
            worker.close()
