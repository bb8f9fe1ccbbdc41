"""Every error Collage raises on purpose.

An error says what failed, on what, why, and what to do; its facts are attributes too. A *refusal* is not an
error: it is the value `collage_core.contract.Unsupported`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to a message about a name nobody knows; empty if no known one is like it.

    Examples:
        >>> did_you_mean("onnxruntim", ["openvino", "onnxruntime"])
        "; did you mean 'onnxruntime'?"
        >>> did_you_mean("tvm", ["openvino", "onnxruntime"])
        ''
    """
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


class CollageError(Exception):
    """Base of every error Collage raises; its text is one complete message for a user."""


class UsageError(CollageError):
    """What the user asked for does not exist, makes no sense or does not fit the model; the command exits with 2."""


class ModelError(CollageError):
    """A model cannot be read or prepared."""


class PluginError(CollageError):
    """A plugin broke the contract: wrong type returned, exception raised, or entry point that cannot load.

    Attributes:
        toolchain: Name of the entry point.
        hook: Name of the hook that failed, or `"import"`.
        reason: What happened.
    """

    def __init__(self, toolchain: str, hook: str, reason: str) -> None:
        self.toolchain = toolchain
        self.hook = hook
        self.reason = reason
        super().__init__(f"toolchain {toolchain!r} failed in {hook}: {reason}")


class LoweringError(CollageError):
    """A toolchain accepted a kernel function and then failed to build it."""


class KernelError(CollageError):
    """A loaded kernel failed to bind or to run."""


class ModelFileError(ModelError):
    """A model cannot be read from, or written to, where the user said.

    Attributes:
        source: The path, or `<bytes>`.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use {source!r} as an ONNX model: {reason}")


class ExternalDataError(ModelFileError):
    """Weights kept outside the model file cannot be used.

    Attributes:
        tensor: Name of the first tensor affected.
        location: Where the model says it is, relative to the model.
    """

    def __init__(self, source: str, tensor: str, location: str, reason: str) -> None:
        self.tensor = tensor
        self.location = location
        super().__init__(source, f"its weight {tensor!r} is in external data {location!r}: {reason}")


class InvalidModelError(ModelError):
    """A model is not what the ONNX standard says a model is, and something stumbled over it.

    Attributes:
        reason: What ONNX's checker says.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the model is not valid ONNX: {reason}. Mend or export it again; `onnx.checker` shows more.")


class NewerModelError(ModelError):
    """A model is of a version of the ONNX standard that came after this Collage.

    Attributes:
        what: What has the version.
        version: The model's.
        newest: The newest known here.
    """

    def __init__(self, what: str, version: int, newest: int) -> None:
        self.what = what
        self.version = version
        self.newest = newest
        super().__init__(
            f"the model is of {what} {version}, and the newest known here is {newest}. "
            "Export it for that version or an older one, or install a newer onnx."
        )


class InputShapeError(ModelError, UsageError):
    """The shapes given for a model's inputs do not make it static, or contradict it.

    Attributes:
        input_name: The input concerned.
        reason: What is wrong with its shape.
    """

    def __init__(self, input_name: str, reason: str) -> None:
        self.input_name = input_name
        self.reason = reason
        super().__init__(f"input {input_name!r}: {reason}")


class SearchError(CollageError):
    """A search problem is ill-formed, or too large for the limits it was given."""


class SolverMissingError(UsageError):
    """Something was asked for that an optional dependency does.

    Attributes:
        what: What was asked for.
        module: The module it takes.
        extra: What to install.
    """

    def __init__(self, what: str, module: str, extra: str) -> None:
        self.what = what
        self.module = module
        self.extra = extra
        super().__init__(f"{what} needs {module}, which is not installed: pip install '{extra}'")


class NoCoverError(SearchError):
    """No plan covers every node.

    Attributes:
        nodes: Indices of the nodes no usable candidate covers; or, if each is covered by some, of the nodes
            where every partial plan got stuck.
        stuck: Whether it is the latter.
        refusals: One line per reason, where the caller knows them.
    """

    def __init__(
        self,
        nodes: tuple[int, ...],
        *,
        stuck: bool = False,
        refusals: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
    ) -> None:
        self.nodes = nodes
        self.stuck = stuck
        self.refusals = refusals
        shown = [repr(name) for name in names] or [str(index) for index in nodes]
        what = ", ".join(shown[:10]) + (f" and {len(nodes) - 10} more" if len(nodes) > 10 else "")
        problem = (
            f"no set of candidates fits together at node(s) {what}" if stuck else f"no toolchain runs node(s) {what}"
        )
        why = f": {'; '.join(refusals).rstrip('.')}" if refusals else ""
        super().__init__(
            f"{problem}{why}. Install a plugin that covers it, exclude fewer toolchains, or enable 'reference'."
        )

    def explained(self, refusals: tuple[str, ...], names: tuple[str, ...] = ()) -> NoCoverError:
        """The same error with the reasons the caller collected, and names in place of indices where it knows them."""
        return NoCoverError(self.nodes, stuck=self.stuck, refusals=refusals, names=names)


class PinError(UsageError):
    """A pin that nobody it names can keep.

    Attributes:
        pin: As written.
        node: Name of a node it holds.
        refusals: What the pinned toolchain said of it, one line per reason.
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
    """A plan file cannot be read, or is none of this model.

    Attributes:
        source: The file.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use {source!r} as a plan: {reason}")


class EvaluationError(CollageError):
    """The numeric reference cannot compute a node, and no other toolchain was named to do so.

    Attributes:
        node_name: The node concerned.
        op_type: Its operator, with its domain unless that is ONNX's own.
        reason: What its implementation said.
    """

    def __init__(self, node_name: str, op_type: str, reason: str) -> None:
        self.node_name = node_name
        self.op_type = op_type
        self.reason = reason
        super().__init__(
            f"the reference cannot compute node {node_name!r} ({op_type}): {reason}. "
            "Name a toolchain that can with `--reference`."
        )


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


class KernelLoadError(KernelError):
    """The kernel of a call site cannot be made callable here.

    Attributes:
        site: Call site in the partitioned model.
        target: Name of the target it was built for.
        nodes: Names of the nodes it computes.
        reason: What is missing, or what the toolchain said.
    """

    def __init__(self, site: str, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.site = site
        self.target = target
        self.nodes = nodes
        self.reason = reason
        super().__init__(
            f"kernel {site!r} of {target} ({_some(nodes)}) cannot be loaded here: {reason}. "
            "Install what it needs, or optimize the model again on this machine."
        )


class LoweredAgainWarning(UserWarning):
    """Kernels of a package did not fit this machine and were built anew; they work, unmeasured."""


class KernelRunError(KernelError):
    """A kernel failed while an executable ran.

    Attributes:
        site: Call site in the partitioned model, or the name of a host node.
        target: Name of the target that runs it; `"host"` for Collage itself.
        nodes: Names of the nodes it computes.
        reason: What was raised.
    """

    def __init__(self, site: str, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.site = site
        self.target = target
        self.nodes = nodes
        self.reason = reason
        if target == "host":  # nobody's kernel: a copy between devices, a wait for one, a view
            super().__init__(f"step {site!r} failed while running: {reason}.")
            return
        super().__init__(
            f"kernel {site!r} of {target} ({_some(nodes)}) failed while running: {reason}. "
            f"To do without this toolchain, optimize again with `--exclude {target.partition('(')[0]}`."
        )


class MemoryNeededError(CollageError):
    """A model needs more memory than there is.

    Attributes:
        nbytes: What it needs in one piece.
        reason: What there is.
    """

    def __init__(self, nbytes: int, reason: str) -> None:
        self.nbytes = nbytes
        self.reason = reason
        super().__init__(
            f"the values of this model need {nbytes / 2**30:.1f} GiB of memory in one piece: {reason}. "
            "Give it smaller inputs, or a larger machine."
        )


class DeviceError(CollageError):
    """A device beside the CPU cannot do what is asked of it.

    Attributes:
        device: Its name, `"cuda:0"`.
        reason: What happened.
        advice: What to do.
    """

    advice = "A plan for the CPU does without it: leave out the device's toolchains with `--exclude`."

    def __init__(self, device: str, reason: str, advice: str = "") -> None:
        self.device = device
        self.reason = reason
        self.advice = advice or type(self).advice
        super().__init__(f"device {device}: {reason.rstrip('.')}. {self.advice.rstrip('.')}.")


class DeviceUnavailableError(DeviceError):
    """There is no such device here, or nothing installed that could use it."""


class DeviceMemoryError(DeviceError):
    """The device has not as much free memory as was asked for."""

    advice = "Give the model smaller inputs, end what else uses the device, or use a device with more memory"


class DeviceLostError(DeviceError):
    """The device no longer answers: it was reset, fell off the bus, or a kernel broke its context."""

    advice = (
        "Nothing more can be done on it in this process: start it again; if that fails too, look at the driver's log"
    )


class DeviceCapabilityError(DeviceError):
    """Code for this device was not made, or it cannot do what the code asks."""

    advice = "Optimize the model again on a machine with this device, or use one that the package was made for"


class DriverTooOldError(DeviceError):
    """The driver is older than the library that speaks to it."""

    advice = "Update the driver, or install the library's build for an older one"


class DeviceCaptureError(DeviceError):
    """Calls could not be captured in a graph of the device."""

    advice = "They run one by one instead; `launch=eager` of the target asks for that from the start"


class DeviceUseError(DeviceError):
    """The device was used against its rules, which is a defect of a plugin or of Collage."""

    advice = "Report it, with the model, to whoever brings the kernel named"


class FeedError(UsageError):
    """What was given to a session does not fit its inputs or outputs.

    Attributes:
        value: The input or output concerned.
        reason: What is wrong, and what is expected.
    """

    def __init__(self, value: str, reason: str) -> None:
        self.value = value
        self.reason = reason
        super().__init__(f"{value!r}: {reason}")


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
    """The file is something else."""


class PackageVersionError(PackageError):
    """The file was written by a newer Collage, in a format this one does not know."""


class PackageDamagedError(PackageError):
    """The file is truncated, altered, or made to do harm."""


def _some(names: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class RecordError(CollageError):
    """A record cannot be read.

    Attributes:
        source: The file or package it is from.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(
            f"cannot read the record of {source!r}: {reason}. "
            "Optimize the model again, or use the Collage version that wrote it."
        )


class DatabaseError(CollageError):
    """The tuning database cannot be used.

    Attributes:
        source: Its URL or path.
        reason: What is wrong with it.
    """

    advice = "Name another with --tuning-db, or COLLAGE_TUNING_DB."

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use the tuning database {source!r}: {reason}. {self.advice}")


class DatabaseForeignError(DatabaseError):
    """The file belongs to another program; it was left as it is."""


class DatabaseVersionError(DatabaseError):
    """A newer Collage wrote the file; it was left as it is."""

    advice = "Use that version, or name another database with --tuning-db or COLLAGE_TUNING_DB."


class DatabaseDamagedError(DatabaseError):
    """The file is truncated or altered."""

    advice = "Move it away to start afresh; `collage db export` saves what can still be read."


class DatabaseReadOnlyError(DatabaseError):
    """The file, its directory or the way it was opened does not allow writing."""


class DatabaseDiskError(DatabaseError):
    """The disk is full, or fails; what was acknowledged before is kept."""

    advice = "Make room on its disk, or name another with --tuning-db or COLLAGE_TUNING_DB."


class DatabaseLockedError(DatabaseError):
    """Another process kept the file locked for too long."""

    advice = "End that process, or try again."


class DatabaseNameError(DatabaseError, UsageError):
    """What was given to name a database names none."""


class PartitioningError(CollageError):
    """Kernels chosen for a graph are no partitioning of it.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"these kernels do not partition the graph: {reason}. "
            "Give disjoint kernels that cover every node and can run one after the other."
        )


class PlanBuildError(CollageError):
    """A kernel that was measured cannot be built for one of its call sites, or is wrong there.

    Attributes:
        target: Name of its target.
        nodes: Names of its nodes.
        reason: What happened.
    """

    def __init__(self, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.target = target
        self.nodes = nodes
        self.reason = reason
        shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        super().__init__(f"{target} cannot build {shown}: {reason}")


class VerificationError(CollageError):
    """A finished plan does not give the reference's numbers, or does not run where it will be used."""
