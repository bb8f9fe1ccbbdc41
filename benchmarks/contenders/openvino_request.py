"""OpenVINO on the CPU, as `compile_model(path)(inputs)` or tuned by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino


def setup(
    model_path: str,
    inputs: dict[str, np.ndarray[Any, Any]],
    threads: int,
    *,
    tuned: str = "true",
    precision: str = "f32",
    dynamic: str = "false",
) -> Callable[[], Any]:
    """Load a model and bind its inputs and outputs.

    Args:
        model_path: ONNX file.
        inputs: Arrays by input name; kept and read at each run.
        threads: Inference threads; the default contender leaves them to the library.
        tuned: `false` for a model compiled as it comes and called with a dictionary of inputs.
        precision: `f32` or `bf16`.
        dynamic: `true` leaves free dimensions free, as for inputs of several shapes.

    Raises:
        RuntimeError: If OpenVINO computes in another precision than was asked for. It emulates bf16 where the CPU has
            AVX-512 without it.
    """
    core = openvino.Core()
    model = core.read_model(model_path)
    if tuned == "false":
        plain = core.compile_model(model, "CPU")
        request = plain.create_infer_request()
        names = [port.get_any_name() for port in plain.outputs]
        call = functools.partial(request.infer, inputs)
        call.outputs = functools.partial(_read, request, names)  # type: ignore[attr-defined]
        return call

    if dynamic == "false" and any(port.partial_shape.is_dynamic for port in model.inputs):
        shapes = {p.get_any_name(): list(inputs[p.get_any_name()].shape) for p in model.inputs}
        model.reshape(shapes)
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": precision,
        },
    )
    used = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if used != precision:
        raise RuntimeError(f"OpenVINO computes in {used} on this CPU, not in {precision}")
    request = compiled.create_infer_request()
    buffers: dict[str, np.ndarray[Any, Any]] = {}
    for port in compiled.inputs:
        array = inputs[port.get_any_name()]
        request.set_tensor(port, openvino.Tensor(array, shared_memory=True))
    for port in compiled.outputs:
        if port.partial_shape.is_static:
            array = np.empty(tuple(port.shape), port.element_type.to_dtype())
            buffers[port.get_any_name()] = array
            request.set_tensor(port, openvino.Tensor(array, shared_memory=True))
    names = [port.get_any_name() for port in compiled.outputs]

    # Without share_outputs every run copies all outputs into new arrays.
    call = functools.partial(request.infer, share_outputs=True)
    call.as_called = functools.partial(compiled, inputs)  # type: ignore[attr-defined]  # In a request of its own.
    call.outputs = functools.partial(_read, request, names)  # type: ignore[attr-defined]
    call.buffers = (inputs, buffers)  # type: ignore[attr-defined]  # Shared: keep them alive.
    return call


def _read(request: Any, names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array(request.get_tensor(name).data) for name in names}
