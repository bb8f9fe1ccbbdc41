"""What runs on a machine of the cluster: a server of jobs, with cores to itself.

Only bytes and text go in and come out. What Ray does with them is its own affair: who may connect to a Ray cluster may
run code on it, and who runs code on it may do so where the answers are read, because Ray unpickles.
"""

from __future__ import annotations

import os
import time
from typing import Any

from collage.errors import WireError
from collage.serve.job_server import JobServer, NoCoresError

_WAIT_S = 60.0
"""How long to wait for cores: leases that just ended give them back when the system has come to their end."""


class Lease:
    """Serves jobs, one after another.

    Args:
        cores: Physical cores to lease.

    Raises:
        NoCoresError: If others have leased them for a minute.
    """

    def __init__(self, cores: int) -> None:
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's; libraries are told by each request
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self._server = JobServer(cores)
            except NoCoresError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def missing(self, blobs: list[str]) -> list[str]:
        """Return those byte strings that are not there, by SHA-256."""
        return list(self._server.missing(blobs))

    def put(self, data: bytes) -> None:
        """Keep a byte string."""
        self._server.put(data)

    def run(self, body: bytes) -> dict[str, Any]:
        """Run a job; return `body` and `blobs` of what came of it, or `refused`: why it is none."""
        try:
            done = self._server.run(body)
        except WireError as error:
            return {"refused": str(error)}
        return {"body": done.body, "blobs": dict(done.blobs)}
