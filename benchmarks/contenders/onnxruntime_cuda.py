"""ONNX Runtime's CUDA provider, inputs and outputs in the GPU's memory; timed as described in `torch_module.py`.

The options are those in its documentation of the CUDA execution provider.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
WARM_UP = 3
"""Runs before the first timed one: the provider captures its graph in the first."""


def setup(
    model_path: str,
    inputs: dict[str, np.ndarray[Any, Any]],
    threads: int,
    *,
    device: str = "cuda:0",
    tf32: str = "false",
) -> Callable[[], Any]:
    """Load a model, place its inputs, and have its run captured as a CUDA graph.

    Args:
        model_path: ONNX file; its outputs have static shapes.
        inputs: Arrays by input name.
        threads: Of the CPU.
        device: Where; `cpu` for a rehearsal.
        tf32: `true` lets products and convolutions of float32 round to TF32.

    Raises:
        RuntimeError: If this ONNX Runtime has no CUDA provider.
    """
    kind, _, number = device.partition(":")
    ordinal = int(number or 0)
    if kind == "cuda" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        has = ", ".join(onnxruntime.get_available_providers())
        raise RuntimeError(f"this ONNX Runtime has no CUDA provider, only {has}; pip install onnxruntime-gpu")
    try:
        # where part of the model is left to the CPU, the session itself refuses the graph
        session, note = _session(model_path, threads, kind, ordinal, tf32 == "true", graph=kind == "cuda")
        call = _bound(session, inputs, kind, ordinal)
        for _ in range(WARM_UP):
            call()
    except Exception as error:
        if kind != "cuda":
            raise
        reason = " ".join(str(error).split())
        session, note = _session(model_path, threads, kind, ordinal, tf32 == "true", graph=False)
        note += f": its graph failed ({reason})"
        call = _bound(session, inputs, kind, ordinal)
        call()
    call.note = note  # type: ignore[attr-defined]
    return call


def _session(
    path: str, threads: int, kind: str, ordinal: int, tf32: bool, graph: bool
) -> tuple[onnxruntime.InferenceSession, str]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if kind == "cpu":
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), "on the CPU"
    cuda = {
        "device_id": str(ordinal),
        "use_tf32": "1" if tf32 else "0",
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "enable_cuda_graph": "1" if graph else "0",
    }
    session = onnxruntime.InferenceSession(path, options, providers=[("CUDAExecutionProvider", cuda)])
    if session.get_providers()[0] != "CUDAExecutionProvider":  # it goes on without one that does not start
        raise RuntimeError("ONNX Runtime's CUDA provider did not start; its log says why")
    return session, "one CUDA graph" if graph else "kernels launched one by one"


def _bound(
    session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray[Any, Any]], kind: str, ordinal: int
) -> Callable[[], Any]:
    """Create a run on values placed on the device; ONNX Runtime synchronises at its end by default."""
    binding, value = session.io_binding(), onnxruntime.OrtValue
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, value.ortvalue_from_numpy(array, kind, ordinal))
    outputs = {}
    for output in session.get_outputs():
        dtype = _DTYPES[output.type]
        outputs[output.name] = value.ortvalue_from_shape_and_type(output.shape, dtype, kind, ordinal)
        binding.bind_ortvalue_output(output.name, outputs[output.name])
    call = functools.partial(session.run_with_iobinding, binding)
    call.outputs = lambda: {name: each.numpy() for name, each in outputs.items()}  # type: ignore[attr-defined]
    return call
