"""A process that works for the driver failed it."""

from __future__ import annotations

from collage_core.errors.base import CollageError


class DeadlineExceededError(CollageError):
    """Work did not finish in the time it was given.

    Attributes:
        what: The work.
        deadline_s: The time it was given, in seconds.
    """

    def __init__(self, what: str, deadline_s: float) -> None:
        self.what = what
        self.deadline_s = deadline_s
        super().__init__(f"{what} did not finish within {deadline_s:g} s")


class WireError(CollageError):
    """What came from another process is not a message, or names bytes nobody has."""


class WorkerError(CollageError):
    """A process that works for the driver died, hung or broke the protocol.

    Attributes:
        worker: What it worked for: a toolchain or a contender.
        kind: `"start"`, `"crash"`, `"deadline"`, `"memory"` or `"protocol"`.
        reason: What happened, with the last lines it wrote to its standard error.
    """

    def __init__(self, worker: str, kind: str, reason: str) -> None:
        self.worker = worker
        self.kind = kind
        self.reason = reason
        super().__init__(f"the worker process of {worker!r} failed ({kind}): {reason}")
