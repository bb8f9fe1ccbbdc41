"""Serves the jobs of one lease on a machine of a runner: what a runner's own process there makes and calls."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Self

from collage.devices.this_host import this_host
from collage.errors import WireError
from collage.serve.core_leases import CoreLease
from collage.serve.interference_work import interference
from collage.serve.installed import Installed
from collage.fleet.jobs import AskDescription, AskInterference, AskOptimize, from_bytes, to_bytes
from collage.serve.optimizing import optimized
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import blobs_of
from collage.measure.wire.messages import AskMeasure
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import JobDone


class NoCoresError(Exception):
    """Raised where fewer cores are free than a lease is to have."""


class JobServer:
    """Runs jobs one after another. Made, and always called, on one thread, from which its processes start.

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
        self._installed = Installed(host, self._store)
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
        if lacking := self.missing(blobs_of(ask)):
            raise WireError(f"it refers to {len(lacking)} byte strings that were not sent")
        match ask:
            case AskDescription():
                return JobDone(body=to_bytes(self._installed.described(ask)))
            case AskMeasure():
                return JobDone(body=to_bytes(self._installed.measured(ask)))
            case AskInterference():
                return JobDone(body=to_bytes(interference(ask)))
            case AskOptimize():
                answer = optimized(ask, self._store)
                return JobDone(body=to_bytes(answer), blobs={name: self._store.read(name) for name in blobs_of(answer)})
            case _:
                raise WireError(f"{type(ask).__name__} is no job")

    def close(self) -> None:
        """End all processes, and give the cores back; closing again does nothing."""
        self._installed.close()
        self._folder.close()
        if self._lease is not None:
            self._lease.close()
