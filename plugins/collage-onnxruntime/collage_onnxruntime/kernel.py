"""An optimised model as a callable kernel."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import onnx_ir

from collage_core.contract import Artifact, BoundCall, Buffer, Host, Kernel, RunContext, Target, Unsupported, ValueKind
from collage_core.errors import KernelError
from collage_onnxruntime.weights import UNREAD, WEIGHTS, Array, aligned, reads_elsewhere, session_values, view

MODEL = "model.onnx"
_LONG = (onnx_ir.DataType.INT64, onnx_ir.DataType.UINT64)
"""Types of which NumPy has two of the same size, C's `long` and `long long`; ONNX Runtime makes the other one.

They compare as equal, but `numpy.issubdtype` tells them apart.
"""
BLOCKED_DOMAIN = "com.microsoft.nchwc"
"""Domain of operators on channels blocked by the width of a vector register; weights are stored for that width."""


def vector_isa(host: Host) -> str:
    """Return the CPU feature that determines the width of a channel block.

    Source: `MlasNchwcGetBlockSize` in microsoft/onnxruntime.
    """
    return "avx512f" if "avx512f" in host.cpu_flags else host.system.rpartition(" ")[2]


def one_line(error: BaseException) -> str:
    """Return ONNX Runtime's message without its number prefix, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    prefix, found, rest = text.partition("[ONNXRuntimeError] : ")
    if found and not prefix:
        text = rest.split(" : ", 2)[-1]  # "9 : NOT_IMPLEMENTED : Could not find ..."
    return text if len(text) <= 300 else text[:297] + "..."


def load(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Create a session without optimising again.

    Args:
        target: Target that determines whether threads may spin.
        artifact: Artifact returned by `lower`.
        run: Threads and the weights the artifact does not embed.

    Returns:
        The kernel, or why the session cannot be created here.
    """
    return open_session(target, artifact, run)


def open_session(
    target: Target, artifact: Artifact, run: RunContext, *, model: bytes | None = None, trace: Path | None = None
) -> OnnxRuntimeKernel | Unsupported:
    """Create a session; see `load`.

    Args:
        target: As for `load`.
        artifact: As for `load`.
        run: As for `load`.
        model: The artifact's model with other names; None for the model itself.
        trace: Prefix of a file that receives the times of nodes; None for no times.
    """
    try:
        import onnxruntime
    except Exception as error:
        return Unsupported(f"onnxruntime cannot be imported ({error}); pip install onnxruntime")
    metadata: Mapping[str, Any] = artifact.metadata
    isa = vector_isa(run.host)
    if metadata["blocked"] and metadata["vector_isa"] != isa:
        return Unsupported(f"its weights are blocked for {metadata['vector_isa']}, this machine needs {isa}")
    try:
        weights = {name: np.asarray(run.constants[key], order="C") for name, key in artifact.constants.items()}
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    if metadata["made"]:
        blob = aligned(artifact.files[WEIGHTS])
        for made in metadata["made"]:
            weights[made["name"]] = view(blob, made["at"], onnx_ir.DataType[made["dtype"]], tuple(made["shape"]))
    if reason := reads_elsewhere(artifact.files[MODEL], weights):
        return Unsupported(reason)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = run.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if metadata["ordered"]:
        # By default nodes run depth-first from the outputs, the producer with the highest index first (`ReverseDFSFrom`
        # in graph.cc). The model was saved in that order, so its branches would run the other way around: a detector's
        # took 2.5 % longer. By priority nodes run in the order of the file, but for Shape and Size, which come first.
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    values = dict(zip(*session_values(weights), strict=True))
    for name, value in values.items():
        options.add_initializer(name, value)  # read where it is: `add_external_initializers` has it copied
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(UNREAD))
    if target.option("spin") != "true":
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if trace is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(trace)
    try:
        session = onnxruntime.InferenceSession(
            model or artifact.files[MODEL], options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        return Unsupported(one_line(error))
    return OnnxRuntimeKernel(session, metadata["inputs"], metadata["outputs"], (weights, values))


class OnnxRuntimeKernel:
    """A session and the memory from which it reads weights.

    Args:
        session: An `onnxruntime.InferenceSession`.
        inputs: The session's names of the kernel function's inputs, in the function's order.
        outputs: The same for outputs.
        memory: What the session reads weights from without owning it.
    """

    reentrant: Literal[True] = True
    """A session may run in several threads at once; its threads serve them all."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str], memory: object) -> None:
        self._session = session
        self._inputs = inputs
        self._outputs = outputs
        self._memory = memory

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        if len(inputs) != len(self._inputs) or len(outputs) != len(self._outputs):
            raise KernelError(
                f"the kernel has {len(self._inputs)} inputs and {len(self._outputs)} outputs, "
                f"not {len(inputs)} and {len(outputs)}"
            )
        named_inputs = list(zip(self._inputs, inputs, strict=True))
        named_outputs = list(zip(self._outputs, outputs, strict=True))
        if not all(_is_tensor(buffer) for buffer in (*inputs, *outputs)):
            return self._call_by_value(named_inputs, named_outputs)
        if not any(map(_is_planned, outputs)) and all(map(_has_numpy_dtype, (*inputs, *outputs))):
            return self._call_by_value(named_inputs, named_outputs)  # faster than to bind what moves
        binding = self._session.io_binding()
        places = _Places.of(binding)
        for name, buffer in named_inputs:
            if _is_planned(buffer):
                places.read(name, buffer)
        for name, buffer in named_outputs:
            if _is_planned(buffer):
                places.write(name, buffer)
        run = self._fastest_run(binding)
        moving_inputs = [(name, buffer) for name, buffer in named_inputs if not _is_planned(buffer)]
        moving_outputs = [(name, buffer) for name, buffer in named_outputs if not _is_planned(buffer)]
        # the binding lists outputs in the order they were first bound: planned ones first
        planned_outputs = len(named_outputs) - len(moving_outputs)
        if not moving_inputs and not moving_outputs:
            # Binding holds addresses only: the call keeps alive what they point to.
            run.__dict__["keeps"] = (self, inputs, outputs)
            return run

        def let_go() -> None:
            # A binding keeps what a run allocated, and would hand it to the next run as if it had the right shape.
            for name, _ in moving_outputs:
                places.allocate(name)

        def call() -> None:
            for name, buffer in moving_inputs:
                places.read(name, buffer)
            try:
                run()
                values = places.values()
                for at, (_, buffer) in enumerate(moving_outputs, start=planned_outputs):
                    buffer.put(_array_of(values[at], buffer.spec.numpy_dtype))
            finally:
                let_go()

        let_go()
        call.__dict__["keeps"] = (self, inputs, outputs)
        return call

    def end_trace(self) -> Path:
        """Stop writing times of nodes; return the file."""
        return Path(self._session.end_profiling())

    def _fastest_run(self, binding: Any) -> functools.partial[Any]:
        """Return the fastest call that runs a binding.

        A trivial session takes 5.3 us by `InferenceSession.run_with_iobinding`, which checks for GPU graphs first, and
        2.8 us by the C++ object below it with run options made once.
        """
        options = _quiet()
        inner, bound = getattr(self._session, "_sess", None), getattr(binding, "_iobinding", None)
        if inner is None or bound is None:
            return functools.partial(self._session.run_with_iobinding, binding, options)
        return functools.partial(inner.run_with_iobinding, bound, options)

    def _call_by_value(self, inputs: Sequence[tuple[str, Buffer]], outputs: Sequence[tuple[str, Buffer]]) -> BoundCall:
        """Return a call that passes all inputs and outputs by value.

        Strings, sequences and optionals have no address, so they and all other values are passed by value. Arrays are
        read where they are, and outputs are views of what ONNX Runtime allocated.
        """
        names, options = [name for name, _ in outputs], _quiet()
        run = getattr(self._session, "_sess", self._session).run  # as in `_fastest_run`
        places = [(buffer, buffer.spec.dtype in _LONG) for _, buffer in outputs]

        def call() -> None:
            feeds = {name: buffer.value for name, buffer in inputs}
            for (buffer, is_long), value in zip(places, run(names, feeds, options), strict=True):
                buffer.put(value.view(buffer.spec.numpy_dtype) if is_long and isinstance(value, np.ndarray) else value)

        call.__dict__["keeps"] = self  # and the weights, which the session reads and does not own
        return call


def _quiet() -> Any:
    """Return options of a run that logs no more than the session does."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    return options


def _is_planned(buffer: Buffer) -> bool:
    return buffer.spec.kind is ValueKind.PLANNED


def _has_numpy_dtype(buffer: Buffer) -> bool:
    return buffer.spec.numpy_dtype.isbuiltin == 1


def _is_tensor(buffer: Buffer) -> bool:
    return buffer.spec.dtype not in (None, onnx_ir.DataType.STRING)


@dataclasses.dataclass(frozen=True, slots=True)
class _Places:
    """Tells a binding where a tensor is, in the fastest way that this version of ONNX Runtime has.

    Attributes:
        bind_input: Takes a name, the device, element type, shape and address.
        bind_output: Likewise; with name and device alone, each run allocates the output.
        values: Returns the outputs of the last run, as `OrtValue` or the C++ object in it.
        device: The CPU as these take it.
    """

    bind_input: Callable[..., None]
    bind_output: Callable[..., None]
    values: Callable[[], Sequence[Any]]
    device: tuple[Any, ...]

    @classmethod
    def of(cls, binding: Any) -> Self:
        """Return the places of an `IOBinding`, which makes an object for the device each time it is told of one."""
        inner, device = getattr(binding, "_iobinding", None), _cpu()
        if inner is None or device is None:
            return cls(binding.bind_input, binding.bind_output, binding.get_outputs, ("cpu", 0))
        return cls(inner.bind_input, inner.bind_output, inner.get_outputs, (device,))

    def read(self, name: str, buffer: Buffer) -> None:
        """Have an input read from a buffer."""
        self._bind(self.bind_input, name, buffer)

    def write(self, name: str, buffer: Buffer) -> None:
        """Have an output written into a buffer."""
        self._bind(self.bind_output, name, buffer)

    def allocate(self, name: str) -> None:
        """Have the next run allocate an output, which is not known to have the size of the last."""
        self.bind_output(name, *self.device)

    def _bind(self, bind: Callable[..., None], name: str, buffer: Buffer) -> None:
        dtype, array = buffer.spec.dtype, buffer.array
        assert dtype is not None
        bind(name, *self.device, int(dtype), array.shape, array.__array_interface__["data"][0])


@functools.cache
def _cpu() -> Any:
    """Return the object by which the C++ binding knows the CPU; None if this version has no such object."""
    import onnxruntime

    return getattr(onnxruntime.OrtDevice.make("cpu", 0), "_ort_device", None)


def _array_of(value: Any, dtype: np.dtype[Any]) -> Array:
    """Return an output that a run allocated, which belongs to the array from then on."""
    if dtype.isbuiltin == 1:  # ONNX Runtime knows no other, such as bfloat16
        array: Array = value.numpy()  # not a copy: the array keeps the memory
        return array if array.dtype.num == dtype.num else array.view(dtype)
    return _array_over(value, dtype).copy()


def _array_over(value: Any, dtype: np.dtype[Any]) -> Array:
    """Return a view of a value whose element type its own `numpy()` does not know."""
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(value.data_ptr())
    array: Array = np.ctypeslib.as_array(memory).view(dtype).reshape(shape)
    return array
