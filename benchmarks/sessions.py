"""Toolchains and packages as users call them: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

OWN: Final = "collage"
SINGLES: Final = ("onnxruntime", "openvino")

Call: TypeAlias = Callable[[Mapping[str, np.ndarray[Any, Any]]], Sequence[np.ndarray[Any, Any]]]
"""Runs a model on inputs by name; returns its outputs in order."""


def session_of(name: str, folder: Path, threads: int) -> Call:
    """Load `model.collage` of a folder, or its `model.onnx` with free dimensions.

    Args:
        name: `OWN`, one of `SINGLES`, or `reference`, ONNX's own evaluator.
        folder: Where both are.
        threads: Threads of a toolchain; a package brings its own number.
    """
    model = folder / "model.onnx"
    if name == OWN:
        import collage

        session = collage.load(folder / "model.collage")
        return lambda feeds: session.run(None, feeds)
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        runtime = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda feeds: list(runtime.run(None, feeds))
    if name == "openvino":
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        request = compiled.create_infer_request()
        return lambda feeds: list(request.infer(feeds).values())
    import onnx.reference

    evaluator = onnx.reference.ReferenceEvaluator(str(model))
    return lambda feeds: list(evaluator.run(None, feeds))
