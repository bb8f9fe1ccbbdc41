"""Optimize a whole model as a job, in a process of its own that may be ended with all that it started."""

from __future__ import annotations

import sys

from collage.errors import WireError, WorkerError
from collage.fleet.jobs import CODEC, AskOptimize, OptimizeDone
from collage.measure.driver.child import ChildProcess
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed, Stage

_NAME = "optimize"


def optimized(ask: AskOptimize, store: BlobStore) -> OptimizeDone | Failed:
    """Optimize a model; the package is put into the store.

    Args:
        ask: The job.
        store: Has the model.
    """
    child: ChildProcess | None = None
    try:
        child = ChildProcess(
            _NAME,
            "collage.serve.optimize_main",
            ["--blobs", str(store.directory)],
            memory_limit_bytes=sys.maxsize,  # its workers have limits of their own
        )
        deadline = child.deadline(ask.deadline_s)
        child.send(CODEC.encode(ask, 1), deadline)
        answer = CODEC.decode(child.receive(deadline))
    except (WorkerError, WireError) as error:
        return Failed(stage=Stage.RUN, reason=str(error))
    finally:
        if child is not None:
            child.kill()
    if not isinstance(answer, OptimizeDone | Failed):
        return Failed(stage=Stage.RUN, reason=f"it answered with {type(answer).__name__}")
    return answer
