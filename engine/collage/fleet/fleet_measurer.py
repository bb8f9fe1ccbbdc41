"""Measure candidates on machines of a runner: each in a lease of its own, and elsewhere if the machine is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from collage.fleet.jobs import from_bytes, to_bytes
from collage.measure.driver.records import is_short_of_disk
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import blobs_of
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Failed, Measured, Outcome, Refused, Stage
from collage_core.contract import Job, Runner
from collage_core.contract.device import HOST
from collage_core.errors import LostJobError, RunnerError

_LOSSES = 3
"""Leases that a candidate may take with it before it is given up for this run."""
_STRIKES = 3
"""Candidates in a row with which a machine does not even begin, before a lease there is given up."""


class FleetMeasurer:
    """See `Measurer`. Leases that are lost come back when their machine does; the last one that goes ends the run.

    Args:
        runner: Has the machines.
        name: What the user calls it.
        leases: Name of a machine for each candidate that may be measured at once; one machine may be there repeatedly.
        cores: Physical cores of a lease.
        store: Has the byte strings that requests refer to.

    Attributes:
        losses: What was lost so far, a sentence each.
    """

    def __init__(self, runner: Runner, name: str, leases: Sequence[str], cores: int, store: BlobStore) -> None:
        self._runner = runner
        self._name = name
        self._cores = cores
        self._store = store
        self._width = len(leases)
        self._free = list(leases)
        self._working = 0
        self._strikes: dict[str, int] = {}
        self._changed = threading.Condition()
        self.losses: list[str] = []

    @property
    def width(self) -> int:
        """See `Measurer`."""
        return self._width

    @property
    def is_here(self) -> bool:
        """See `Measurer`."""
        return False

    def measure(self, ask: AskMeasure) -> Outcome:
        """See `Measurer`.

        Raises:
            RunnerError: If no machine is left.
        """
        body, blobs = to_bytes(ask), tuple(dict.fromkeys(blobs_of(ask)))
        devices = 0 if ask.target.device == HOST else 1
        why = ""
        for _ in range(_LOSSES):
            host = self._taken()
            job = Job(host=host, cores=self._cores, devices=devices, body=body, blobs=blobs)
            try:
                answer = from_bytes(self._runner.submit(job, self._store.read).result().body)
            except LostJobError as error:
                self._lost(host, str(error))
                why = str(error)
                continue
            except BaseException:
                self._given_back(host)
                raise
            if not isinstance(answer, Measured | Refused | Failed):
                self._given_back(host)
                raise RunnerError(self._name, f"{host} answered with {type(answer).__name__}")
            if isinstance(answer, Failed) and (answer.stage is Stage.START or is_short_of_disk(answer.reason)):
                self._failed(host, answer.reason)
                why = f"{host}: {answer.reason}"
                continue
            self._given_back(host, well=True)
            return answer
        return Failed(stage=Stage.START, reason=f"no machine measured it, {_LOSSES} were tried; the last was {why}")

    def _taken(self) -> str:
        """Return a machine with a free lease; wait for one."""
        with self._changed:
            while not self._free:
                if not self._working:
                    why = f": {self.losses[-1]}" if self.losses else ""
                    raise RunnerError(self._name, f"no machine is left{why}")
                self._changed.wait()
            self._working += 1
            return self._free.pop(0)

    def _given_back(self, host: str, *, well: bool = False) -> None:
        with self._changed:
            if well:
                self._strikes.pop(host, None)
            self._working -= 1
            self._free.append(host)
            self._changed.notify_all()

    def _failed(self, host: str, reason: str) -> None:
        """Count that a machine did not even begin; one that keeps doing so would take every candidate in no time."""
        with self._changed:
            self._strikes[host] = self._strikes.get(host, 0) + 1
            self._working -= 1
            if self._strikes[host] < _STRIKES or not (self._free or self._working):
                self._free.append(host)
            else:
                self.losses.append(f"{host} is given up: it began none of {_STRIKES} candidates: {reason}")
            self._changed.notify_all()

    def _lost(self, host: str, reason: str) -> None:
        """Record a loss; the lease comes back if the machine is there."""
        try:
            there = {each.name for each in self._runner.hosts()}
        except RunnerError:
            there = set()
        with self._changed:
            self.losses.append(reason)
            self._working -= 1
            if host in there:
                self._free.append(host)
            self._changed.notify_all()
