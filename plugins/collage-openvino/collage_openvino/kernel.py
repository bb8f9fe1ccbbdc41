"""An exported model as a callable kernel."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import onnx_ir

from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, RunContext, Target, Unsupported, ValueKind
from collage_core.errors import KernelError
from collage_openvino.weights import WEIGHTS, write_weights

BLOB = "model.blob"

_ELEMENT_TYPES = MappingProxyType(
    {
        onnx_ir.DataType.FLOAT: "f32",
        onnx_ir.DataType.FLOAT16: "f16",
        onnx_ir.DataType.BFLOAT16: "bf16",
        onnx_ir.DataType.FLOAT8E4M3FN: "f8e4m3",
        onnx_ir.DataType.FLOAT8E5M2: "f8e5m2",
        onnx_ir.DataType.INT8: "i8",
        onnx_ir.DataType.INT16: "i16",
        onnx_ir.DataType.INT32: "i32",
        onnx_ir.DataType.INT64: "i64",
        onnx_ir.DataType.UINT8: "u8",
        onnx_ir.DataType.UINT16: "u16",
        onnx_ir.DataType.UINT32: "u32",
        onnx_ir.DataType.UINT64: "u64",
        onnx_ir.DataType.BOOL: "boolean",
    }
)

_NOISE = (
    "Exception from ",
    "Check '",
    "FrontEnd API failed",
    "Model wasn't fully converted",
    "Summary:",
    "-- Conversion is failed",
    "To facilitate the conversion",
    "While validating",
    "[ GENERAL_ERROR ]",
)


def element_type(dtype: onnx_ir.DataType) -> str:
    """Return OpenVINO's name of an ONNX element type; `""` if tensors of it cannot be exchanged."""
    return _ELEMENT_TYPES.get(dtype, "")


def one_line(error: BaseException) -> str:
    """Return the message of an OpenVINO exception on one line, without the stack of source files around it."""
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    telling = [
        line.removeprefix("-- ")
        for line in lines
        if line and not line.startswith(_NOISE) and not line.endswith("with a message:")
    ]
    text = "; ".join(telling) or " ".join(filter(None, lines)) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def properties(target: Target, threads: int) -> dict[str, Any]:
    """Return the settings with which a model is compiled and imported.

    One stream with all threads: kernels run one after the other. Threads are not pinned to cores, since other
    libraries' threads share the cores in a mixed plan.
    """
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
    }
    if target.rounded_precision == "bf16":
        return settings | {"INFERENCE_PRECISION_HINT": "bf16"}
    # ACCURACY also turns off what float32 alone leaves on: activations quantised to 8 bits before products with
    # compressed weights, and 8-bit key-value caches.
    return settings | {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"}


def weightless_properties(weights: Path) -> dict[str, str]:
    """Return the settings that keep weights in a file of their own instead of in the export."""
    return {"CACHE_MODE": "OPTIMIZE_SIZE", "WEIGHTS_PATH": str(weights)}


def load(core: Any, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Import a compiled model.

    Args:
        core: An `openvino.Core`.
        target: Target that determines the precision.
        artifact: Artifact returned by `lower`.
        run: Threads, the weights the artifact does not embed, a folder for them.

    Returns:
        The kernel, or why the model cannot be imported here.
    """
    compiled = import_model(core, target, artifact, run)
    return compiled if isinstance(compiled, Unsupported) else kernel_over(compiled, artifact)


def import_model(
    core: Any, target: Target, artifact: Artifact, run: RunContext, further: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Return an imported `openvino.CompiledModel`, or why it cannot be imported; see `load`.

    Args:
        core: As for `load`.
        target: As for `load`.
        artifact: As for `load`.
        run: As for `load`.
        further: Settings besides those with which the model was compiled.
    """
    metadata: Mapping[str, Any] = artifact.metadata
    settings = {**properties(target, run.threads), **further}
    try:
        weights = [run.constants[artifact.constants[name]] for name in metadata["weights"]]
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    with contextlib.ExitStack() as stack:
        if weights:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=run.scratch, ignore_cleanup_errors=True)))
            # Importing maps the file or reads it: either way its name is not needed afterwards.
            write_weights(folder / WEIGHTS, weights)
            settings |= weightless_properties(folder / WEIGHTS)
        try:
            return core.import_model(artifact.files[BLOB], "CPU", settings)
        except Exception as error:
            return Unsupported(one_line(error))


def kernel_over(compiled: Any, artifact: Artifact) -> OpenVinoKernel:
    """Return an imported model as a kernel."""
    metadata: Mapping[str, Any] = artifact.metadata
    return OpenVinoKernel(compiled, metadata["inputs"], len(metadata["outputs"]))


class OpenVinoKernel:
    """An imported model.

    Args:
        compiled: An `openvino.CompiledModel`.
        inputs: Names of the kernel function's inputs, in their order.
        output_count: Number of outputs; the model's are in the same order.
    """

    reentrant: Literal[True] = True
    """Each bound call has its own request; concurrent requests on one stream wait for each other."""

    def __init__(self, compiled: Any, inputs: Sequence[str], output_count: int) -> None:
        self._compiled = compiled
        # The frontend drops inputs nobody reads, and merges tensor names where a value passes through: only the
        # parameter's own ("friendly") name stays what ONNX called it.
        places = {str(port.get_node().get_friendly_name()): i for i, port in enumerate(compiled.inputs)}
        self._inputs = [places.get(name) for name in inputs]
        self._output_count = output_count

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        if len(inputs) != len(self._inputs) or len(outputs) != self._output_count:
            raise KernelError(
                f"the kernel has {len(self._inputs)} inputs and {self._output_count} outputs, "
                f"not {len(inputs)} and {len(outputs)}"
            )
        request = self._compiled.create_infer_request()
        used = [(place, buffer) for place, buffer in zip(self._inputs, inputs, strict=True) if place is not None]
        tensors: dict[int, Any] = {}
        for place, buffer in used:
            if _is_planned(buffer):
                tensors[place] = _tensor_over(buffer)
                request.set_input_tensor(place, tensors[place])
        written = []
        for place, buffer in enumerate(outputs):
            if _is_planned(buffer):
                written.append(_tensor_over(buffer))
                request.set_output_tensor(place, written[-1])
        run = _fastest_run(request)
        moving_inputs = [(place, buffer) for place, buffer in used if not _is_planned(buffer)]
        moving_outputs = [(place, buffer) for place, buffer in enumerate(outputs) if not _is_planned(buffer)]
        if not moving_inputs and not moving_outputs:
            run.__dict__["keeps"] = (self, tensors, written, inputs, outputs)  # tensors over memory they do not own
            return run

        def call() -> None:
            # The request holds addresses only, and is told of others before it runs again.
            given = [(place, _tensor_over(buffer)) for place, buffer in moving_inputs]
            for place, tensor in given:
                request.set_input_tensor(place, tensor)
            run()
            for place, buffer in moving_outputs:
                found = request.get_output_tensor(place).data
                buffer.put(found.view(buffer.spec.numpy_dtype).copy())

        call.__dict__["keeps"] = (self, tensors, written, inputs, outputs)
        return call


def _fastest_run(request: Any) -> functools.partial[Any]:
    """Return the fastest call that runs a request whose tensors are set.

    A trivial model takes 17 us by `InferRequest.infer()`, which checks for new inputs and wraps the outputs,
    and 13 us by the method below it; with shared outputs, that method does not copy them.
    """
    try:
        from openvino._pyopenvino import InferRequest
    except ImportError:
        return functools.partial(request.infer, share_outputs=True)
    return functools.partial(InferRequest.infer, request, {}, True, False)


def _is_planned(buffer: Buffer) -> bool:
    return buffer.spec.kind is ValueKind.PLANNED


def _tensor_over(buffer: Buffer) -> Any:
    """Return an `openvino.Tensor` over the buffer's memory."""
    import openvino

    array = np.asarray(buffer.array, order="C")
    dtype = buffer.spec.dtype
    assert dtype is not None
    if not array.flags.writeable:
        array = array.copy()  # OpenVINO takes no read-only memory, even for an input
    if array.dtype.kind in "iu" or array.dtype.isbuiltin != 1:
        # The binding knows NumPy types by identity: one int64 of the two C has, and no bfloat16.
        array = array.view(np.dtype(f"{array.dtype.kind if array.dtype.kind in 'iu' else 'u'}{array.dtype.itemsize}"))
    return openvino.Tensor(array, array.shape, getattr(openvino.Type, element_type(dtype)))
