"""TensorRT, or TensorRT for RTX: an engine built from the ONNX file, its run captured as a CUDA graph.

Written to the API that both have in versions 10 and 11; memory and stream are CuPy's. Timed as described in
`torch_module.py`.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")


def setup(
    model_path: str,
    inputs: dict[str, np.ndarray[Any, Any]],
    threads: int,
    *,
    device: str = "cuda:0",
    tf32: str = "false",
    level: str = "5",
) -> Callable[[], Any]:
    """Build an engine, place inputs and outputs, and capture a run.

    Args:
        model_path: ONNX file; it is built with its own dtypes, so its precision is the file's.
        inputs: Arrays by input name.
        threads: Of no use to TensorRT.
        device: Where.
        tf32: `true` lets products and convolutions of float32 round to TF32.
        level: How hard the builder tries, up to 5.

    Raises:
        RuntimeError: If there is no TensorRT that builds, or it refuses the model.
    """
    if not device.startswith("cuda"):
        raise RuntimeError("TensorRT runs on NVIDIA GPUs only")
    trt = library()
    import cupy

    cupy.cuda.Device(int(device.partition(":")[2] or 0)).use()
    logger = trt.Logger(trt.Logger.ERROR)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(built(trt, logger, Path(model_path).read_bytes(), tf32 == "true", level))
    if engine is None:
        raise RuntimeError(f"{trt.__name__} does not take its own engine on this device")
    context = engine.create_execution_context()
    stream = cupy.cuda.Stream(non_blocking=True)
    arrays: dict[str, Any] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        if name in inputs:
            arrays[name] = cupy.asarray(inputs[name])
        else:
            dtype = trt.nptype(engine.get_tensor_dtype(name))
            arrays[name] = cupy.empty(tuple(engine.get_tensor_shape(name)), dtype)
        context.set_tensor_address(name, arrays[name].data.ptr)
    cupy.cuda.runtime.deviceSynchronize()  # the arrays were filled on another stream

    def enqueue() -> None:
        if not context.execute_async_v3(stream.ptr):
            raise RuntimeError(f"{trt.__name__} could not enqueue a run")

    launch, note = _captured(stream, enqueue)

    def call() -> None:
        launch()
        stream.synchronize()

    call.outputs = lambda: {name: each.get() for name, each in arrays.items() if name not in inputs}  # type: ignore[attr-defined]
    call.note = note  # type: ignore[attr-defined]
    call.kept = (runtime, engine, context, arrays)  # type: ignore[attr-defined]  # They own what the run uses.
    return call


def library() -> types.ModuleType:
    """Import the first available TensorRT library that has a builder.

    Raises:
        RuntimeError: If there is none; gives the reason for each.
    """
    reasons = []
    for name in _NAMES:
        try:
            found = importlib.import_module(name)
        except Exception as error:  # a stub without its libraries raises whatever it likes
            reasons.append(f"{name}: {error}")
            continue
        if hasattr(found, "Builder"):
            return found
        reasons.append(f"{name} has no builder")
    raise RuntimeError(f"no TensorRT is installed ({'; '.join(reasons)})")


def built(trt: Any, logger: Any, model: bytes, tf32: bool, level: str) -> Any:
    """Build the serialised engine of a model.

    Raises:
        RuntimeError: If the parser or the builder refuses the model; says where.
    """
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        reasons = "; ".join(parser.get_error(index).desc() for index in range(parser.num_errors))
        raise RuntimeError(f"{trt.__name__} does not take the model: {reasons}")
    config = builder.create_builder_config()
    config.builder_optimization_level = int(level)
    if tf32:
        config.set_flag(trt.BuilderFlag.TF32)
    else:  # on unless it is cleared
        config.clear_flag(trt.BuilderFlag.TF32)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise RuntimeError(f"{trt.__name__} could not build an engine; its log says why")
    return engine


def _captured(stream: Any, enqueue: Callable[[], None]) -> tuple[Callable[[], None], str]:
    """Capture a run as one CUDA graph after a warm-up run; return it uncaptured if capture fails."""
    enqueue()
    stream.synchronize()
    try:
        stream.begin_capture()
        try:
            enqueue()
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    except Exception as error:
        return enqueue, f"enqueued anew each time: the capture failed ({' '.join(str(error).split())})"
    return lambda: graph.launch(stream), "one CUDA graph"
