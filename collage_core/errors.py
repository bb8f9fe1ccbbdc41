"""Every error that core raises. Each text is one complete message for a user; its facts are also attributes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CollageError(Exception):
    """Base of every error Collage raises; its text is one complete message for a user."""


class UsageError(CollageError):
    """The request names something unknown, is invalid or does not fit the model; the command exits with 2."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to a message about an unknown name; empty if no known name is similar.

    Examples:
        >>> did_you_mean("onnxruntim", ["openvino", "onnxruntime"])
        "; did you mean 'onnxruntime'?"
        >>> did_you_mean("tvm", ["openvino", "onnxruntime"])
        ''
    """
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


class ModelError(CollageError):
    """A model cannot be read or prepared."""


class ModelFileError(ModelError):
    """A model cannot be read from, or written to, the given location.

    Attributes:
        source: The path, or `<bytes>`.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use {source!r} as an ONNX model: {reason}")


class ExternalDataError(ModelFileError):
    """Weights stored outside the model file cannot be used.

    Attributes:
        tensor: Name of the first affected tensor.
        location: Location given in the model, relative to the model file.
    """

    def __init__(self, source: str, tensor: str, location: str, reason: str) -> None:
        self.tensor = tensor
        self.location = location
        super().__init__(source, f"its weight {tensor!r} is in external data {location!r}: {reason}")


class InvalidModelError(ModelError):
    """A model violates the ONNX standard, and processing it failed.

    Attributes:
        reason: Message of ONNX's checker.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the model is not valid ONNX: {reason}. Mend or export it again; `onnx.checker` shows more.")


class NewerModelError(ModelError):
    """A model requires a newer version of the ONNX standard than this Collage supports.

    Attributes:
        what: The versioned item.
        version: Version that the model requires.
        newest: Newest supported version.
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
    """The given input shapes do not make a model static, or contradict it.

    Attributes:
        input_name: The affected input.
        reason: What is wrong with its shape.
    """

    def __init__(self, input_name: str, reason: str) -> None:
        self.input_name = input_name
        self.reason = reason
        super().__init__(f"input {input_name!r}: {reason}")


class EvaluationError(CollageError):
    """The numeric reference cannot compute a node, and no fallback toolchain was given.

    Attributes:
        node_name: The affected node.
        op_type: Operator of the node, with its domain unless that is ONNX's own.
        reason: Message of the implementation.
    """

    def __init__(self, node_name: str, op_type: str, reason: str) -> None:
        self.node_name = node_name
        self.op_type = op_type
        self.reason = reason
        super().__init__(
            f"the reference cannot compute node {node_name!r} ({op_type}): {reason}. "
            "Name a toolchain that can with `--reference`."
        )


class NodeMemoryError(CollageError):
    """Computing a node takes more memory than there is, or than is allowed.

    Attributes:
        node_name: The affected node.
        op_type: Operator of the node.
        reason: What does not fit.
    """

    def __init__(self, node_name: str, op_type: str, reason: str) -> None:
        self.node_name = node_name
        self.op_type = op_type
        self.reason = reason
        super().__init__(f"node {node_name!r} ({op_type}) needs too much memory: {reason}")


class PluginError(CollageError):
    """A plugin violated the contract: wrong type returned, exception raised, or entry point that cannot load.

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


class ProcessDamagedError(CollageError):
    """A plugin's code left this process in a state in which nothing may be done but end it.

    Attributes:
        toolchain: Name of the plugin's toolchain.
        hook: Name of the hook, or `"import"`.
        damage: What it did: `"closed files that are not its own"`.
    """

    def __init__(self, toolchain: str, hook: str, damage: str) -> None:
        self.toolchain = toolchain
        self.hook = hook
        self.damage = damage
        super().__init__(
            f"toolchain {toolchain!r} {damage} in {hook}; this process cannot go on. "
            "Uninstall its plugin, or report this to its authors."
        )


class LoweringError(CollageError):
    """A toolchain accepted a kernel function and then failed to build it."""


class KernelError(CollageError):
    """A loaded kernel failed to bind or to run."""


class KernelLoadError(KernelError):
    """The kernel of a call site cannot be loaded here.

    Attributes:
        site: Call site in the partitioned model.
        target: Name of the target it was built for.
        nodes: Names of the nodes it computes.
        reason: What is missing, or the toolchain's message.
    """

    def __init__(self, site: str, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.site = site
        self.target = target
        self.nodes = nodes
        self.reason = reason
        super().__init__(
            f"kernel {site!r} of {target} ({_some(nodes)}) cannot be loaded here: {reason.rstrip('.')}. "
            "Install what it needs, or optimize the model again on this machine."
        )


class KernelRunError(KernelError):
    """A kernel failed while an executable ran.

    Attributes:
        site: Call site in the partitioned model, or the name of a host node.
        target: Name of the target that runs it; `"host"` for Collage itself.
        nodes: Names of the nodes it computes.
        reason: The error that was raised.
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


def _some(names: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class MemoryNeededError(CollageError):
    """A model needs more memory than is available.

    Attributes:
        nbytes: Size of the contiguous block it needs, in bytes.
        reason: How much is available.
    """

    def __init__(self, nbytes: int, reason: str) -> None:
        self.nbytes = nbytes
        self.reason = reason
        super().__init__(
            f"the values of this model need {nbytes / 2**30:.1f} GiB of memory in one piece: {reason}. "
            "Give it smaller inputs, or a larger machine."
        )


class DeviceError(CollageError):
    """An operation on a device other than the CPU failed.

    Attributes:
        device: Name of the device, `"cuda:0"`.
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
    """The device does not exist here, or no installed software can use it."""


class DeviceMemoryError(DeviceError):
    """The device has less free memory than requested."""

    advice = "Give the model smaller inputs, end what else uses the device, or use a device with more memory"


class DeviceLostError(DeviceError):
    """The device no longer answers: it was reset, fell off the bus, or a kernel broke its context."""

    advice = (
        "Nothing more can be done on it in this process: start it again; if that fails too, look at the driver's log"
    )


class DeviceCapabilityError(DeviceError):
    """No code was built for this device, or it lacks a feature that the code requires."""

    advice = "Optimize the model again on a machine with this device, or use one that the package was made for"


class DriverTooOldError(DeviceError):
    """The driver is older than the library using it requires."""

    advice = "Update the driver, or install the library's build for an older one"


class DeviceCaptureError(DeviceError):
    """Calls could not be captured in a device graph."""

    advice = "They run one by one instead; `launch=eager` of the target asks for that from the start"


class DeviceUseError(DeviceError):
    """The device was used incorrectly, which is a defect of a plugin or of Collage."""

    advice = "Report it, with the model, to whoever brings the kernel named"


class SearchError(CollageError):
    """A search problem is ill-formed, or too large for the limits it was given."""


class SolverMissingError(UsageError):
    """A feature needs an optional dependency that is not installed.

    Attributes:
        what: The requested feature.
        module: The missing module.
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
        nodes: Indices of the nodes that no usable candidate covers; or, if every node is covered by some
            candidate, of the nodes where every partial plan got stuck.
        stuck: Whether `nodes` has the latter meaning.
        refusals: One line per reason, if the caller knows them.
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
        """Return a copy of the error with the refusals the caller collected, and node names where they are known."""
        return NoCoverError(self.nodes, stuck=self.stuck, refusals=refusals, names=names)


class PartitioningError(CollageError):
    """The kernels chosen for a graph do not partition it.

    Attributes:
        reason: What is wrong with the kernels.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"these kernels do not partition the graph: {reason}. "
            "Give disjoint kernels that cover every node and can run one after the other."
        )


class FeedError(UsageError):
    """A value given to a session does not fit its inputs or outputs.

    Attributes:
        value: The affected input or output.
        reason: What is wrong, and what is expected.
    """

    def __init__(self, value: str, reason: str) -> None:
        self.value = value
        self.reason = reason
        super().__init__(f"{value!r}: {reason}")


class DeadlineExceededError(CollageError):
    """Work did not finish within its deadline.

    Attributes:
        what: The work.
        deadline_s: The deadline in seconds.
    """

    def __init__(self, what: str, deadline_s: float) -> None:
        self.what = what
        self.deadline_s = deadline_s
        super().__init__(f"{what} did not finish within {deadline_s:g} s")


class RunnerError(CollageError):
    """The machines of a runner cannot be used.

    Attributes:
        runner: What the user calls it, without secrets.
        reason: Why, and what to do.
    """

    def __init__(self, runner: str, reason: str) -> None:
        self.runner = runner
        self.reason = reason
        super().__init__(f"cannot use the runner {runner!r}: {reason}")


class LostJobError(RunnerError):
    """A machine, or what ran a job there, was lost or failed; the job may be run elsewhere.

    Attributes:
        host: Name of the machine.
    """

    def __init__(self, runner: str, host: str, reason: str) -> None:
        self.host = host
        super().__init__(runner, f"a job on {host} was lost: {reason}")
