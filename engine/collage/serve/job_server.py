"""Serves the jobs of one lease on a machine of a runner: what a runner's own process there makes and calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Self

from collage.devices.this_host import this_host
from collage.errors import WireError
from collage.fleet.jobs import AskDescription, AskInterference, AskOptimize, OptimizeDone, from_bytes, to_bytes
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import blobs_of
from collage.measure.wire.messages import AskMeasure
from collage.serve.core_leases import CoreLease
from collage.serve.installed import Installed
from collage.serve.interference_work import interference
from collage.serve.optimizing import Optimizing
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import JobDone


class NoCoresError(Exception):
    """Raised where fewer cores are free than a lease is to have."""


class JobServer:
    """Runs jobs one after another. Made, called and closed on one thread, from which its processes start.

    Args:
        cores: Physical cores that it leases, and keeps its processes to; None for all of the machine, unleased.

    Raises:
        NoCoresError: If they are not free.
    """

    def __init__(self, cores: int | None = None) -> None:
        host = this_host()  # before this thread is kept to some cores
        self._lease = None if cores is None else CoreLease.take(cores)
        if self._lease is not None:
            self._lease.pin()
        elif cores is not None:
            raise NoCoresError(f"fewer than {cores} cores are free on this machine")
        self._folder = TemporaryFolder("jobs")
        self._store = BlobStore(self._folder.path / "blobs")
        self._installed = Installed(host, this_host(), self._store)
        self._optimizing = Optimizing(self._store)
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def missing(self, blobs: Iterable[str]) -> tuple[str, ...]:
        """Return those byte strings that are not there yet, by SHA-256.

        Raises:
            WireError: If one is no SHA-256.
        """
        return tuple(name for name in dict.fromkeys(blobs) if name not in self._store)

    def put(self, data: bytes) -> None:
        """Keep a byte string until the server is closed."""
        self._store.put(data)

    def run(self, body: bytes) -> JobDone:
        """Run a job whose byte strings are there; what goes wrong with its candidate is part of the answer.

        Args:
            body: The job, as `Job.body`.

        Raises:
            WireError: If it is no job.
        """
        if threading.get_ident() != self._thread:
            raise RuntimeError("a job server is called on the thread that made it")
        ask = from_bytes(body)
        if lacking := self.missing(_referred(ask)):
            raise WireError(f"it refers to {len(lacking)} byte strings that were not sent")
        match ask:
            case AskDescription():
                return JobDone(body=to_bytes(self._installed.described(ask)))
            case AskMeasure():
                return JobDone(body=to_bytes(self._installed.measured(ask)))
            case AskInterference():
                return JobDone(body=to_bytes(interference(ask)))
            case AskOptimize():
                self._installed.rest()  # nothing else is to run beside what it times
                answer = self._optimizing.run(ask)
                made = [answer.package] if isinstance(answer, OptimizeDone) else []
                return JobDone(body=to_bytes(answer), blobs={name: self._store.read(name) for name in made})
            case _:
                raise WireError(f"{type(ask).__name__} is no job")

    def interrupt(self) -> None:
        """End the processes of the job that runs, from any thread: its answer then says so."""
        self._optimizing.interrupt()
        self._installed.interrupt()

    def close(self) -> None:
        """End all processes, and give the cores back; closing again does nothing."""
        with contextlib.ExitStack() as stack:
            if self._lease is not None:
                stack.callback(self._lease.close)
            stack.callback(self._folder.close)
            stack.callback(self._installed.close)


def _referred(ask: object) -> Iterator[str]:
    """Yield the names of the byte strings that a job refers to."""
    yield from blobs_of(ask)
    if isinstance(ask, AskOptimize):
        yield ask.model
        yield from ask.files.values()
