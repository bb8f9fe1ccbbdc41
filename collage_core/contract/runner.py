"""Runners: who has machines, and runs jobs of the engine there. They are found by the group `collage.runners`.

The entry point's name is what a user's `--runner` begins with: `ray` for `ray://host:10001`. It refers to a function
that takes the whole text and returns a `Runner`. What jobs are is the engine's: a runner carries their bytes to a
`JobServer` on the machine, and gives each the cores and devices that it asks for, to itself alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeAlias, runtime_checkable

RUNNER_ENTRY_POINT_GROUP = "collage.runners"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunnerHost:
    """A machine, or the part of one that a runner has.

    Attributes:
        name: Its name, which no other of the runner's has.
        cores: Physical CPU cores that jobs may have there.
        devices: Devices other than the CPU that jobs may have there.
        at_once: Most jobs that run there at once, however little each asks for.
    """

    name: str
    cores: int
    devices: int = 0
    at_once: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work for one machine.

    Attributes:
        host: Name of the machine, as in `RunnerHost`.
        cores: Physical CPU cores that it has to itself.
        devices: Devices that it has to itself.
        body: What is to be done, for a `JobServer`.
        blobs: SHA-256 of byte strings that the body refers to; see `submit`.
    """

    host: str
    cores: int
    body: bytes
    devices: int = 0
    blobs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """What came of a job.

    Attributes:
        body: The answer of the `JobServer`.
        blobs: Byte strings that the answer refers to, by SHA-256.
    """

    body: bytes
    blobs: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@runtime_checkable
class Runner(Protocol):
    """Runs jobs on machines. Several threads may submit jobs."""

    def hosts(self) -> Sequence[RunnerHost]:
        """Return the machines that there are at the moment.

        Raises:
            RunnerError: If they cannot be reached.
        """

    def submit(self, job: Job, read: Callable[[str], bytes]) -> Future[JobDone]:
        """Run a job as soon as its machine has cores and devices that no other job has.

        Of equal cores and devices jobs are run by one `JobServer` after the other, which keeps what it has loaded.

        Args:
            job: The job.
            read: Returns the bytes of a blob; called for those that the machine lacks.

        Returns:
            What came of it. Its exception is a `LostJobError` if the machine, or what ran the job there, was lost, or
            failed itself: the job may be run elsewhere. It is another `RunnerError` if it is no job.
        """

    def close(self) -> None:
        """End all jobs, and give back what they had; closing again does nothing."""


OpenRunner: TypeAlias = Callable[[str], Runner]
"""Opens a runner; raises `RunnerError` if it cannot be reached, `UsageError` if the text makes no sense."""
