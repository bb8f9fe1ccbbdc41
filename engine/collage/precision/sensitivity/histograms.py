"""Histograms of a model's activations over its calibration samples, counted in the worker that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import onnx_ir

from collage.measure.wire.values import encode_value
from collage.precision.sensitivity.series import as_function, run_histograms
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage.values.histogram import Histogram
from collage_core.contract import KernelFunction, Target
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.tensor_spec import ValueKind

_MOST_BYTES: Final = 1 << 28
"""Size of the activations that one function returns, and of their counts. A worker holds activations twice: its own and
its library's.
"""
_COUNT_BYTES: Final = 8


def activation_histograms(
    environment: Environment[Workload], target: Target, largest: Mapping[str, float], bins: int
) -> Iterator[tuple[str, Histogram]]:
    """Yield the name and the histogram of each activation, over all calibration samples.

    The model runs once on each sample for every 256 MiB of activations, so that memory does not grow with the model.

    Args:
        environment: The model and the toolchains.
        target: Runs it; it computes in the model's own types.
        largest: Largest magnitude, above zero, by the name of the activation.
        bins: Number of bins, which is even.

    Raises:
        PrecisionError: If the model cannot be run.
    """
    store = environment.toolchains.store
    samples = environment.workload.calibration
    feeds = [{name: encode_value(value, store) for name, value in sample.items()} for sample in samples]
    for names in parts(environment.graph, list(largest), _MOST_BYTES, _COUNT_BYTES * bins):
        function = returning(environment.graph, names)
        limits = [largest[name] for name in names]
        counts = run_histograms(environment, target, function, feeds, limits, bins, "on calibration samples")
        for name, limit, row in zip(names, limits, counts, strict=True):
            yield name, Histogram.of_counts(limit, row)


def parts(graph: DataflowGraph, names: Sequence[str], most_bytes: int, beside_bytes: int = 0) -> Iterator[list[str]]:
    """Yield names of values in parts of at most some bytes, or of one value; one of unknown size is a part.

    Args:
        graph: The prepared model's graph.
        names: Names of the values.
        most_bytes: Most bytes.
        beside_bytes: Bytes that each value takes besides its own.
    """
    values = _by_name(graph.model)
    part: list[str] = []
    held = 0
    for name in names:
        spec = graph.spec(values[name])
        size = beside_bytes + (most_bytes if spec.kind is ValueKind.FOREIGN else spec.nbytes)
        if part and held + size > most_bytes:
            yield part
            part, held = [], 0
        part.append(name)
        held += size
    if part:
        yield part


def returning(graph: DataflowGraph, names: Sequence[str]) -> KernelFunction:
    """Return the model as a function that returns some of its values, in that order.

    Args:
        graph: The prepared model's graph.
        names: Names of values that are inputs or computed.
    """
    model = graph.model.clone()
    body, values = model.graph, _by_name(model)
    body.outputs.clear()
    for name in names:
        value = values[name]
        if value.producer() is None:  # a library need not return what it was given
            value = onnx_ir.Value(name=f"{name}.returned", shape=value.shape, type=value.type)
            body.append(onnx_ir.node("Identity", [values[name]], outputs=[value], name=f"{value.name}.node"))
        body.outputs.append(value)
    return as_function("activations", model)


def _by_name(model: onnx_ir.Model) -> dict[str, onnx_ir.Value]:
    """Return the inputs and the computed values of a model's graph."""
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return {str(value.name): value for value in values}
