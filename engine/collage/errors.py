"""Errors raised by the engine in addition to core's: packages, plans, workers. Those of the database are in `store`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from collage_core.errors import CollageError, KernelError, UsageError

_NODES_NAMED: Final = 3


def some_of(nodes: Sequence[str]) -> str:
    """Return the first names of some nodes, for messages, and how many more there are.

    Examples:
        >>> some_of(["a", "b"]), some_of(["a", "b", "c", "d", "e"])
        ('a, b', 'a, b, c and 2 more')
    """
    more = len(nodes) - _NODES_NAMED
    return ", ".join(nodes[:_NODES_NAMED]) + (f" and {more} more" if more > 0 else "")


class ModelCostError(CollageError):
    """Preparing or evaluating a model takes more memory or time than it may.

    Attributes:
        what: The work.
        reason: What it takes too much of, and what asked for it as far as that is known.
        advice: What to do.
    """

    def __init__(self, what: str, reason: str, advice: str) -> None:
        self.what = what
        self.reason = reason
        self.advice = advice
        super().__init__(f"{what} {reason}. {advice}")

    @classmethod
    def large(cls, what: str, limit_bytes: int, variable: str, detail: str = "") -> ModelCostError:
        """Return the error for too much memory.

        Args:
            what: The work.
            limit_bytes: The limit.
            variable: Environment variable that raises it.
            detail: What asked for it; empty if that is not known.
        """
        reason = f"needs more than the {limit_bytes / 2**30:.1f} GiB of memory that it may take"
        return cls(
            what,
            reason + (f": {detail}" if detail else ""),
            f"Give the model smaller inputs or attributes, or allow more: {variable}={math.ceil(limit_bytes / 2**29)} "
            "(GiB).",
        )

    @classmethod
    def killed(cls, what: str, detail: str = "", *, known: bool = True) -> ModelCostError:
        """Return the error for a process that was killed from outside.

        Args:
            what: The work.
            detail: Where it was; empty if that is not known.
            known: Whether it is known that the system killed it because memory ran out.
        """
        why = "the system's memory ran out" if known else "probably the system's memory ran out"
        return cls(
            what,
            f"was ended by SIGKILL; {why}" + (f": it was {detail}" if detail else ""),
            "Free memory and run it again, or give the model smaller inputs or attributes.",
        )

    @classmethod
    def late(cls, what: str, deadline_s: float, detail: str = "") -> ModelCostError:
        """Return the error for too much time.

        Args:
            what: The work.
            deadline_s: The limit in seconds.
            detail: Where it was; empty if that is not known.
        """
        return cls(
            what,
            f"did not finish within {deadline_s:.3g} s" + (f": it was {detail}" if detail else ""),
            "Give the model smaller inputs or attributes, or more time with --budget.",
        )


class BudgetError(CollageError):
    """A run has nothing to show for when its budget is spent.

    Attributes:
        what: The work.
        budget_s: The budget in seconds.
    """

    def __init__(self, what: str, budget_s: float, advice: str) -> None:
        self.what = what
        self.budget_s = budget_s
        super().__init__(f"{what} did not finish within its budget of {budget_s:g} s. {advice}")


class LibraryClashError(KernelError):
    """Kernels of a package have loaded two copies of a library of which a process can hold only one.

    Attributes:
        library: Display name: `"cuDNN"`.
        between: The toolchains that loaded them; `""` for a library loaded before.
        files: Their files, in the same order.
    """

    def __init__(self, library: str, between: tuple[str, str], files: tuple[str, str]) -> None:
        self.library = library
        self.between = between
        self.files = files
        one, other = (f"{who} has loaded {file}" for who, file in zip(between, files, strict=True))
        if between[0]:
            remedy = f"Install both for one CUDA, with one {library}, or optimize the model again on this machine"
        else:
            one = f"this process had loaded {files[0]} before"
            remedy = f"Load the package in a process of its own, or install one {library} for all of them"
        super().__init__(
            f"two of {library}: {one}, {other}, and a process has room for one: what kernels compute, and whether they "
            f"run, is not what was measured. {remedy}; `collage doctor` says which toolchains load which."
        )


class SubstituteWarning(UserWarning):
    """Kernels of a package do not load here, and others that were lowered here run in their place, unmeasured."""


class OutsideRangeWarning(UserWarning):
    """A plan runs on inputs of sizes that it was neither measured nor verified for."""


class OtherThreadsWarning(UserWarning):
    """A package runs with another number of threads than it was measured and verified with."""


class PluginWarning(UserWarning):
    """A plugin's code changed something that belongs to the whole process; it was restored where that is possible."""


class PinError(UsageError):
    """A pin that no target it names can satisfy.

    Attributes:
        pin: As written.
        node: Name of a node it holds.
        refusals: Reasons given by the pinned toolchain, one line each.
    """

    def __init__(self, pin: str, node: str, op_type: str, refusals: tuple[str, ...]) -> None:
        self.pin = pin
        self.node = node
        self.refusals = refusals
        why = "; ".join(refusals) or "it proposes no kernel for it"
        super().__init__(
            f"--pin {pin!r} cannot be kept: no kernel of that toolchain runs node {node!r} ({op_type}): {why}. "
            "Pin less, or pin it to another toolchain."
        )


class PlanFileError(UsageError):
    """A plan file cannot be read, or does not match this model.

    Attributes:
        source: The file.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use {source!r} as a plan: {reason}")


class PlanBuildError(CollageError):
    """A measured kernel cannot be built for one of its call sites, or gives wrong results there.

    Attributes:
        target: Name of its target.
        nodes: Names of its nodes.
        reason: What happened.
    """

    def __init__(self, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.target = target
        self.nodes = nodes
        self.reason = reason
        super().__init__(f"{target} cannot build {some_of(nodes)}: {reason}")


class VerificationError(CollageError):
    """A finished plan does not reproduce the reference's values, or does not run in its deployment setting."""


class TooInexactError(VerificationError):
    """The outputs of a plan of lower precision are further off than is allowed, on inputs that nothing has used.

    Attributes:
        excess: Largest error of an output relative to what is allowed; 1 where a metric of the user's says so.
        plan: Key of the plan; empty if it is not known.
    """

    def __init__(self, message: str, excess: float = 1.0, plan: str = "") -> None:
        self.excess = excess
        self.plan = plan
        super().__init__(message)


class MetricError(CollageError):
    """A metric of the user's fails.

    Attributes:
        name: Its name.
        reason: How it fails.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"the metric {name!r} cannot be computed: {reason}")


class PlanRunError(VerificationError):
    """A finished plan does not run.

    Attributes:
        is_late: Whether it was ended because it took too long: with more time it may run.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        self.is_late = is_late
        super().__init__(message)


class WrongKernelError(VerificationError):
    """A finished plan is wrong or does not run because of one of its kernels, which passed when it was measured.

    Attributes:
        target: Name of its target.
        nodes: Names of its nodes.
        site: Its call site in the plan.
        reason: How it fails: alone on fresh inputs, or beside which other kernels.
    """

    def __init__(self, target: str, nodes: tuple[str, ...], site: str, reason: str) -> None:
        self.target = target
        self.nodes = nodes
        self.site = site
        self.reason = reason
        super().__init__(f"{target} is wrong on {some_of(nodes)} ({site}): {reason}")


class WrongPinError(UsageError):
    """A kernel of a pinned node makes the plan wrong.

    Attributes:
        pin: As written.
        wrong: The kernel.
    """

    def __init__(self, pin: str, wrong: WrongKernelError) -> None:
        self.pin = pin
        self.wrong = wrong
        super().__init__(f"--pin {pin!r} cannot be kept: {wrong}. Pin less, or pin it to another toolchain.")


class PackageError(CollageError):
    """A `.collage` file cannot be written, read or trusted.

    Attributes:
        path: The file.
        reason: What is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path!r}: {reason}")


class NotAPackageError(PackageError):
    """The file is not a package."""


class PackageVersionError(PackageError):
    """The file was written by a newer or an older Collage, in a format this one does not read."""


class PackageDamagedError(PackageError):
    """The file is truncated, altered or malicious."""


class TrustError(CollageError):
    """The list of trusted packages cannot be written.

    Attributes:
        folder: Where it is kept.
        reason: What is wrong with it.
    """

    def __init__(self, folder: str, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(
            f"cannot remember a trusted package in {folder!r}: {reason}. "
            "Make the folder writable, or set XDG_STATE_HOME to one that is."
        )


class UnrecordedPackageWarning(UserWarning):
    """A package was saved, but not that it was written on this machine: its code will not be loaded."""


class RecordError(CollageError):
    """A record cannot be read.

    Attributes:
        source: File or package that holds the record.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(
            f"cannot read the record of {source!r}: {reason}. "
            "Optimize the model again, or use the Collage version that wrote it."
        )


class WireError(CollageError):
    """Data from another process is not a valid message, or refers to missing blobs."""


class WorkerError(CollageError):
    """A process that works for the driver died, hung or broke the protocol.

    Attributes:
        worker: The toolchain or contender it worked for.
        kind: `"start"`, `"crash"`, `"deadline"`, `"memory"` or `"protocol"`.
        reason: What happened, with the last lines it wrote to its standard error.
    """

    def __init__(self, worker: str, kind: str, reason: str) -> None:
        self.worker = worker
        self.kind = kind
        self.reason = reason
        super().__init__(f"the worker process of {worker!r} failed ({kind}): {reason}")


class DiskSpaceError(CollageError):
    """The disk of the temporary files has no room for a run.

    Attributes:
        folder: The run's folder among the temporary files.
        needed_bytes: Least number of bytes that the run writes there.
        free_bytes: Number of bytes that are free.
    """

    def __init__(self, folder: str, needed_bytes: int, free_bytes: int) -> None:
        self.folder = folder
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"the disk of {folder!r} has {free_bytes / 1e6:,.1f} MB left; this model takes at least "
            f"{needed_bytes / 1e6:,.1f} MB there while it is measured: every tensor of one run, and the weights twice. "
            "Make room, or set TMPDIR to a folder on a larger disk. What was measured so far is kept in the tuning "
            "database."
        )


class PrecisionError(CollageError):
    """What lower precision does to the model's outputs cannot be found out."""
