"""A runner whose machines are functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from collage.fleet.jobs import from_bytes, to_bytes
from collage_core.contract import Job, JobDone, RunnerHost
from collage_core.errors import LostJobError

Serve = Callable[[str, Any], Any]
"""Answers what a machine is asked, by its name."""


class FakeRunner:
    """See `Runner`; its machines take as many jobs at once as they are given.

    Attributes:
        names: Its machines.
        served: Machine of each job that was answered, in the order of the answers.
        closed: Whether it was closed.
    """

    def __init__(
        self, names: Sequence[str], serve: Serve, *, cores: int = 1, devices: int = 0, at_once: int = 1
    ) -> None:
        self.names = list(names)
        self.served: list[str] = []
        self.closed = False
        self._serve = serve
        self._cores = cores
        self._devices = devices
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(16)
        self._lock = threading.Lock()

    def hosts(self) -> Sequence[RunnerHost]:
        return [
            RunnerHost(name=name, cores=self._cores, devices=self._devices, at_once=self._at_once)
            for name in self.names
        ]

    def submit(self, job: Job, read: Callable[[str], bytes]) -> Future[JobDone]:
        return self._threads.submit(self._run, job, read)

    def close(self) -> None:
        self.closed = True

    def _run(self, job: Job, read: Callable[[str], bytes]) -> JobDone:
        if job.host not in self.names:
            raise LostJobError("fake", job.host, "it is not there")
        for blob in job.blobs:
            read(blob)
        answer = self._serve(job.host, from_bytes(job.body))
        with self._lock:
            self.served.append(job.host)
        return JobDone(body=to_bytes(answer))
