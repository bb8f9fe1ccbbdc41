"""Kernels of a fake device: NumPy on the device's own memory, run when the stream reaches them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.reference import evaluate
from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, KernelFunction, RunContext
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes
from collage_testing.kit.fake_stream import FakeStream, stream_of

_MODEL = "model.onnx"


def lower_for_fake(function: KernelFunction, *, capturable: bool) -> Iterator[Artifact]:
    """Yield the function itself as the artifact, without its weights, which are requested at load time."""
    model = function.model.clone()
    for name in function.constants:
        value = model.graph.initializers.pop(name)
        value.const_value = None
        model.graph.inputs.append(value)
    yield Artifact(files={_MODEL: model_to_bytes(model)}, constants=dict(function.constants), capturable=capturable)


def load_on_fake(artifact: Artifact, run: RunContext, *, us: float = 1.0) -> Kernel:
    """Load a kernel that enqueues on the context's stream and takes `us` microseconds of the device's clock."""
    weights = {name: run.weight(content) for name, content in artifact.constants.items()}
    return FakeKernel(model_from_bytes(artifact.files[_MODEL]), weights, stream_of(run.stream), us)


class FakeKernel:
    """Evaluates a model on a fake device.

    Args:
        model: Model to compute.
        weights: Inputs that are weights, on the device.
        stream: Stream to enqueue on.
        us: Duration by the device's clock, in microseconds.
    """

    def __init__(self, model: ir.Model, weights: Mapping[str, Buffer], stream: FakeStream, us: float) -> None:
        self._model = model
        self._weights = weights
        self._stream = stream
        self._us = us

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        names = [str(value.name) for value in self._model.graph.inputs if value.name not in self._weights]
        results = [str(value.name) for value in self._model.graph.outputs]
        read = {**dict(zip(names, inputs, strict=True)), **self._weights}

        touched = [(each.pointer, each.spec.nbytes) for each in read.values()]
        written = [(each.pointer, each.spec.nbytes) for each in outputs]

        def compute() -> None:
            values = evaluate(self._model, {name: self._view(each).copy() for name, each in read.items()}).values
            for name, buffer in zip(results, outputs, strict=True):
                np.copyto(self._view(buffer), values[name])

        def call() -> None:
            self._stream.enqueue(",".join(results), compute, us=self._us, reads=touched, writes=written)

        return call

    def _view(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        spec = buffer.spec
        return self._stream.device.view(buffer.pointer, spec.static_shape, spec.numpy_dtype)
