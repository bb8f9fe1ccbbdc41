"""The runner that is always there: this machine, one job at a time."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from collage.devices.this_host import this_host
from collage.errors import WireError
from collage.serve.job_server import JobServer
from collage_core.contract import Job, JobDone, RunnerHost
from collage_core.errors import LostJobError, RunnerError, UsageError

NAME = "local"
_HOST = "this machine"
_AGAIN_S = 0.2


class LocalRunner:
    """See `Runner`. All cores and devices are one lease, of which nobody else knows: as without a runner."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "local-runner")
        self._server: JobServer | None = None
        self._closed = threading.Event()

    def hosts(self) -> Sequence[RunnerHost]:
        """See `Runner`."""
        host = this_host()
        return (RunnerHost(name=_HOST, cores=host.physical_cores, devices=len(host.devices), at_once=1),)

    def submit(self, job: Job, read: Callable[[str], bytes]) -> Future[JobDone]:
        """See `Runner`."""
        if self._closed.is_set():
            raise LostJobError(NAME, job.host, "the runner was closed")
        return self._thread.submit(self._run, job, read)

    def _run(self, job: Job, read: Callable[[str], bytes]) -> JobDone:
        if job.host != _HOST:
            raise LostJobError(NAME, job.host, "there is no such machine")
        if self._closed.is_set():
            raise LostJobError(NAME, job.host, "the runner was closed")
        if self._server is None:
            self._server = JobServer()
        try:
            for name in self._server.missing(job.blobs):
                self._server.put(read(name))
            return self._server.run(job.body)
        except WireError as error:
            raise RunnerError(NAME, f"it takes no such job: {error}") from error

    def close(self) -> None:
        """See `Runner`."""
        if self._closed.is_set():
            return
        self._closed.set()
        closed = self._thread.submit(self._close)  # on the thread of the jobs, behind the one that runs
        while not closed.done():
            if self._server is not None:
                self._server.interrupt()
            try:
                closed.result(_AGAIN_S)  # what it had not started yet when it was interrupted is next
            except concurrent.futures.TimeoutError:
                continue
        self._thread.shutdown()

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()


def open_local(text: str) -> LocalRunner:
    """Open it; see `OpenRunner`."""
    if text != NAME:
        raise UsageError(f"the runner {NAME!r} takes nothing else, not {text!r}")
    return LocalRunner()
