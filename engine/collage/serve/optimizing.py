"""Optimize whole models as jobs, each in a process of its own that may be ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from collage.errors import WireError, WorkerError
from collage.fleet.jobs import CODEC, AskOptimize, OptimizeDone
from collage.measure.driver.child import ChildProcess
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed, Stage

_NAME = "optimize"


class Optimizing:
    """Runs such jobs one after another.

    Args:
        store: Has the models; packages are put there.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._pid: int | None = None

    def run(self, ask: AskOptimize) -> OptimizeDone | Failed:
        """Optimize a model."""
        child: ChildProcess | None = None
        try:
            child = ChildProcess(
                _NAME,
                "collage.serve.optimize_main",
                ["--blobs", str(self._store.directory)],
                memory_limit_bytes=sys.maxsize,  # its workers have limits of their own
            )
            self._pid = child.pid
            deadline = child.deadline(ask.deadline_s)
            child.send(CODEC.encode(ask, 1), deadline)
            answer = CODEC.decode(child.receive(deadline))
        except (WorkerError, WireError) as error:
            return Failed(stage=Stage.RUN, reason=str(error))
        finally:
            self._pid = None
            if child is not None:
                child.kill()
        if not isinstance(answer, OptimizeDone | Failed):
            return Failed(stage=Stage.RUN, reason=f"it answered with {type(answer).__name__}")
        return answer

    def interrupt(self) -> None:
        """End the process of the job that runs, from any thread."""
        pid = self._pid
        if pid is not None:
            with contextlib.suppress(OSError):  # it ended meanwhile
                os.killpg(pid, signal.SIGKILL)
