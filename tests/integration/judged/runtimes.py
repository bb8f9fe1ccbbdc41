"""Two runtimes as they are, in one thread, to be judged: their kernels are what a correct kernel may differ by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnxruntime
import openvino

LIMIT = 1e-3
"""Largest error of a correct kernel."""


def by_onnxruntime(model: bytes, feeds: Mapping[str, Any]) -> Sequence[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()}))


def by_openvino(model: bytes, feeds: Mapping[str, Any]) -> Sequence[Any]:
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    known = {name for each in compiled.inputs for name in each.get_names()}
    found = compiled({name: value for name, value in feeds.items() if name in known})
    return [found[each] for each in compiled.outputs]


RUNTIMES: Mapping[str, Callable[[bytes, Mapping[str, Any]], Sequence[Any]]] = {
    "onnxruntime": by_onnxruntime,
    "openvino": by_openvino,
}
