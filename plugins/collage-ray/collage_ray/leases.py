"""Which lease a job has: those of one machine together have no more than the machine has."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from collage_core.contract import RunnerHost

L = TypeVar("L")


@dataclasses.dataclass(eq=False)
class Leased(Generic[L]):
    """A lease.

    Attributes:
        lease: What it is.
        host: Name of its machine.
        cores: Its cores.
        devices: Its devices.
        is_idle: Whether no job has it.
    """

    lease: L
    host: str
    cores: int
    devices: int
    is_idle: bool = False


class Leases(Generic[L]):
    """Leases are made when a job needs one, kept for the next, and ended where a job needs what an idle one has.

    Jobs of one machine that wait are served as leases come back, each by whichever fits first.

    Args:
        end: Ends a lease; may be called for one that has ended.
    """

    def __init__(self, end: Callable[[L], Any]) -> None:
        self._end = end
        self._all: list[Leased[L]] = []
        self._closed = False
        self._changed = threading.Condition()

    def take(self, host: RunnerHost, cores: int, devices: int, make: Callable[[], L]) -> Leased[L] | None:
        """Return a lease with so many cores and devices, to the caller alone; wait for it.

        Args:
            host: The machine.
            cores: Its cores.
            devices: Its devices.
            make: Makes one.

        Returns:
            The lease; None if it was closed, or the machine has less.
        """
        with self._changed:
            while not self._closed and cores <= host.cores and devices <= host.devices:
                here = [each for each in self._all if each.host == host.name]
                for each in here:
                    if each.is_idle and (each.cores, each.devices) == (cores, devices):
                        each.is_idle = False
                        return each
                free_cores = host.cores - sum(each.cores for each in here)
                free_devices = host.devices - sum(each.devices for each in here)
                if cores <= free_cores and devices <= free_devices and len(here) < host.at_once:
                    made = Leased(make(), host.name, cores, devices)
                    self._all.append(made)
                    return made
                idle = [each for each in here if each.is_idle]
                if idle:
                    self._drop(idle[0])
                else:
                    self._changed.wait()
            return None

    def give_back(self, leased: Leased[L]) -> None:
        """Keep a lease for the next job."""
        with self._changed:
            leased.is_idle = True
            if self._closed:
                self._drop(leased)
            self._changed.notify_all()

    def drop(self, leased: Leased[L]) -> None:
        """End a lease."""
        with self._changed:
            self._drop(leased)
            self._changed.notify_all()

    def close(self) -> None:
        """End all leases, and make no more."""
        with self._changed:
            self._closed = True
            for each in list(self._all):
                self._drop(each)
            self._changed.notify_all()

    def _drop(self, leased: Leased[L]) -> None:
        if leased in self._all:
            self._all.remove(leased)
        self._end(leased.lease)
