"""Has workers run the cases; one that crashes or hangs costs its case only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.onnx_nodes.cases import Outcome
from collage_testing.kit.isolated import IsolatedProcess, Lost

ROOT = Path(__file__).parents[2]
CASES_PER_PROCESS = 400
"""A new process now and then: what a library leaks over a thousand models is not what is asked here."""


def run_cases(backend: str, names: Sequence[str], limit_s: float) -> Iterator[Outcome]:
    """Runs cases in order.

    Args:
        backend: `"collage"`, `"onnxruntime"` or `"reference"`.
        names: The cases.
        limit_s: Seconds each may take.
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
