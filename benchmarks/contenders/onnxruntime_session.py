"""ONNX Runtime on the CPU, as `InferenceSession(path).run(...)` or tuned by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}
_CPU = ("cpu", 0)


def setup(
    model_path: str,
    inputs: dict[str, np.ndarray[Any, Any]],
    threads: int,
    *,
    tuned: str = "true",
    spin: str = "true",
    dynamic: str = "false",
) -> Callable[[], Any]:
    """Load a model and bind its inputs and outputs.

    Args:
        model_path: ONNX file.
        inputs: Arrays by input name; kept and read at each run.
        threads: Size of the intra-op pool; the default contender leaves it to the library.
        tuned: `false` for a session as it comes and `run` with a dictionary of inputs.
        spin: `false` makes threads sleep while they wait for work.
        dynamic: `true` leaves free dimensions free, as for inputs of several shapes.
    """
    if tuned == "false":
        session = onnxruntime.InferenceSession(model_path, providers=["CPUExecutionProvider"])
        return functools.partial(session.run, None, inputs)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if spin == "false":
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if dynamic == "false":
        for symbol, size in _free_dimensions(model_path, inputs).items():
            options.add_free_dimension_override_by_name(symbol, size)
    session = onnxruntime.InferenceSession(model_path, options, providers=["CPUExecutionProvider"])

    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, *_CPU, array.dtype, array.shape, array.ctypes.data)
    buffers: dict[str, np.ndarray[Any, Any]] = {}
    for output in session.get_outputs():
        static = all(isinstance(size, int) for size in output.shape)
        if static and output.type in _DTYPES:
            array = np.empty(output.shape, _DTYPES[output.type])
            buffers[output.name] = array
            binding.bind_output(output.name, *_CPU, array.dtype, array.shape, array.ctypes.data)
        else:  # The shape depends on the data: ONNX Runtime allocates at each run.
            binding.bind_output(output.name, "cpu")
    names = [output.name for output in session.get_outputs()]

    def outputs() -> dict[str, np.ndarray[Any, Any]]:
        values = binding.get_outputs()
        return {name: values[i].numpy() for i, name in enumerate(names)}

    call = functools.partial(session.run_with_iobinding, binding)
    call.as_called = functools.partial(session.run, None, inputs)  # type: ignore[attr-defined]
    call.outputs = outputs  # type: ignore[attr-defined]
    call.buffers = (inputs, buffers)  # type: ignore[attr-defined]  # Raw pointers: keep both alive.
    return call


def _free_dimensions(model_path: str, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, int]:
    """Return the sizes of the symbolic dimensions of a model's inputs."""
    quick = onnxruntime.SessionOptions()
    quick.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model_path, quick, providers=["CPUExecutionProvider"])
    return {
        size: inputs[value.name].shape[axis]
        for value in session.get_inputs()
        for axis, size in enumerate(value.shape)
        if isinstance(size, str)
    }
