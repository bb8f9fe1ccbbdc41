"""What a model computes of the calibration samples: the ranges of what products read, and right outputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnx_ir

from collage.build.verifying.output_check import needed
from collage.measure.wire.value_files import write_values
from collage.measure.wire.values import encode_value
from collage.precision.document_names import document_name
from collage.precision.sensitivity.calibrators import CALIBRATORS, EXCEEDED, Array, Calibrator, headroom
from collage.precision.sensitivity.groups import products_of
from collage.precision.sensitivity.histograms import activation_histograms
from collage.precision.sensitivity.series import as_function, run_series
from collage.reference import Evaluation
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.contract import KernelFunction, Target
from collage_core.ir.operators.quantising import Range

_RANGES: Final = "collage.ranges"
_JUDGED: Final = 8
"""Samples on which errors are looked at; ranges are those of all."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One calibration sample.

    Attributes:
        inputs: Path of the document with the model's inputs.
        evaluation: What its outputs should be, and what judging them takes.
    """

    inputs: Path
    evaluation: Evaluation


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedRanges:
    """Ranges of what products read.

    Attributes:
        ranges: By the product's name, the least and the largest number, or what a calibrator chose of these.
    """

    KIND: ClassVar[str] = "ranges"
    VERSION: ClassVar[int] = 2

    ranges: Mapping[str, tuple[float, float]]


class Samples:
    """Runs a model on its calibration samples, when first asked.

    Args:
        environment: The model and the toolchains.
        target: Runs it; it computes in the model's own types.
        ranges: How ranges are chosen, a name in `CALIBRATORS`.
    """

    def __init__(self, environment: Environment[Workload], target: Target, ranges: str = "minmax") -> None:
        self._environment = environment
        self._target = target
        self._calibrator = CALIBRATORS[ranges]
        self._products = products_of(environment.graph)
        self._observed: list[Mapping[str, Any]] | None = None
        self._samples: list[Sample] | None = None

    def ranges(self) -> dict[int, Range]:
        """Return the ranges of what products read, by the product's index; none where all samples have zeros only.

        Raises:
            PrecisionError: If the model cannot be run.
        """
        if not self._products:
            return {}
        calibrator = self._calibrator
        if calibrator is None:
            return _spans(self._remembered(f"minmax {EXCEEDED}", self._all_and_more))
        spans = _spans(self._remembered("extremes", self._all))
        if not spans:
            return spans
        found = self._remembered(calibrator.key, lambda: self._chosen(calibrator, spans))
        return {index: Range(low, high) for index, (low, high) in found.items()}

    def _remembered(
        self, key: str, find: Callable[[], dict[int, tuple[float, float]]]
    ) -> dict[int, tuple[float, float]]:
        """Return what the database knows of one way to choose ranges, or find it."""
        environment, target = self._environment, self._target
        name = document_name(environment, [target.name], ["ranges", target.fingerprint, key])
        known = environment.toolchains.database.get_document(SavedRanges, name)
        if known is None:
            known = SavedRanges(ranges={environment.graph.names[index]: span for index, span in find().items()})
            environment.toolchains.database.put_document(name, known)
        return {environment.graph.index_of(name): span for name, span in known.ranges.items()}

    def _all(self) -> dict[int, tuple[float, float]]:
        """Return the least and the largest number that each product reads in any sample, where both are finite."""
        lows, highs = self._extremes
        return self._by_product(lows.min(axis=0), highs.max(axis=0))

    def _all_and_more(self) -> dict[int, tuple[float, float]]:
        """Return these with headroom for samples that nobody has seen."""
        lows, highs = self._extremes
        with np.errstate(invalid="ignore"):  # infinities are left out
            return self._by_product(lows.min(axis=0) - headroom(-lows), highs.max(axis=0) + headroom(highs))

    def _by_product(self, lows: Array, highs: Array) -> dict[int, tuple[float, float]]:
        return {
            index: (float(low), float(high))
            for (index, _), low, high in zip(self._products, lows, highs, strict=True)
            if np.isfinite(low) and np.isfinite(high)
        }

    @functools.cached_property
    def _extremes(self) -> tuple[Array, Array]:
        """Return the least and the largest number that each product reads, by column, in each sample, by row."""
        further = self._environment.workload.calibration[_JUDGED:]
        runs = [*self._judged_runs(), *(self._run(further, outputs=False) if further else [])]
        rows = np.stack([np.asarray(run[_RANGES], np.float64) for run in runs])
        return rows[:, 0], rows[:, 1]

    def _chosen(self, calibrator: Calibrator, spans: Mapping[int, Range]) -> dict[int, tuple[float, float]]:
        """Return the ranges that a calibrator chooses within those of all elements."""
        read = {index: str(product.activation.name) for index, product in self._products if index in spans}
        observed = {name: spans[index] for index, name in read.items()}
        largest = {name: max(-span.low, span.high) for name, span in observed.items()}
        found = activation_histograms(self._environment, self._target, largest, calibrator.bins)
        chosen = {name: calibrator.choose(histogram, observed[name]) for name, histogram in found}
        return {index: (chosen[name].low, chosen[name].high) for index, name in read.items()}

    def without_range(self) -> list[str]:
        """Return the names of the products without a range, which cannot be quantised.

        Raises:
            PrecisionError: If the model cannot be run.
        """
        found = self.ranges()
        return [self._environment.graph.names[index] for index, _ in self._products if index not in found]

    def samples(self) -> Sequence[Sample]:
        """Return the first samples with what is right.

        Raises:
            PrecisionError: If the model cannot be run.
        """
        if self._samples is None:
            toolchains = self._environment.toolchains
            self._samples = []
            judged = self._environment.workload.calibration[:_JUDGED]
            for number, (inputs, run) in enumerate(zip(judged, self._judged_runs(), strict=True)):
                path = toolchains.folder / f"calibration-{number}.json"
                write_values(path, inputs, toolchains.store)
                values = {name: value for name, value in run.items() if name != _RANGES} | self._constants()
                self._samples.append(Sample(inputs=path, evaluation=Evaluation({**inputs, **values}, {})))
        return self._samples

    def _constants(self) -> dict[str, Any]:
        """Return the outputs of the model that nothing computes."""
        outputs = self._environment.graph.model.graph.outputs
        constants = ((str(value.name), value.const_value) for value in outputs)
        return {name: tensor.numpy() for name, tensor in constants if tensor is not None}

    def _judged_runs(self) -> list[Mapping[str, Any]]:
        if self._observed is None:
            self._observed = self._run(self._environment.workload.calibration[:_JUDGED], outputs=True)
        return self._observed

    def _run(self, given: Sequence[Mapping[str, Any]], *, outputs: bool) -> list[Mapping[str, Any]]:
        """Return what each sample makes of the model: ranges, and outputs with what judging them takes."""
        environment = self._environment
        store = environment.toolchains.store
        function = self._function(outputs=outputs)
        feeds = [{name: encode_value(value, store) for name, value in sample.items()} for sample in given]
        answer = run_series(environment, self._target, function, feeds, "on calibration samples")
        names = [spec.name for spec in function.outputs]
        return [dict(zip(names, run, strict=True)) for run in answer]

    def _function(self, *, outputs: bool) -> KernelFunction:
        """Return the model with the ranges for outputs, and what judging its own outputs takes."""
        graph = self._environment.graph
        model = graph.model.clone()
        body = model.graph
        place = {node: number for number, node in enumerate(graph.model.graph)}
        copies = list(body)
        wanted = needed(graph, [str(value.name) for value in graph.model.graph.outputs]) if outputs else frozenset()
        made = [value for node in copies for value in node.outputs if str(value.name) in wanted]
        body.outputs.clear()
        body.outputs.extend(dict.fromkeys(made))
        if self._products:
            read = [copies[place[product.node]].inputs[0] for _, product in self._products]
            body.outputs.append(_ranges(body, [value for value in read if value is not None]))
        return as_function("samples", model)


def _spans(found: Mapping[int, tuple[float, float]]) -> dict[int, Range]:
    """Return the ranges of products that read other numbers than zeros."""
    return {index: Range.around(low, high) for index, (low, high) in found.items() if low < 0 or high > 0}


def _ranges(body: onnx_ir.Graph, values: Sequence[onnx_ir.Value]) -> onnx_ir.Value:
    """Append what computes the least and the largest element of each value, as two rows."""
    rows = onnx_ir.tensor(np.asarray([2, -1], np.int64), name="collage.ranges.shape")
    shape = onnx_ir.Value(
        name=rows.name, shape=onnx_ir.Shape([2]), type=onnx_ir.TensorType(onnx_ir.DataType.INT64), const_value=rows
    )
    body.register_initializer(shape)
    reduced: dict[tuple[str, onnx_ir.Value], onnx_ir.Value] = {}

    def op(op_type: str, operands: Sequence[onnx_ir.Value], **attributes: int) -> onnx_ir.Value:
        result = onnx_ir.Value(name=f"{_RANGES}.{len(body)}")
        body.append(onnx_ir.node(op_type, operands, attributes, outputs=[result], name=f"{result.name}.node"))
        return result

    parts = []
    for kind in ("ReduceMin", "ReduceMax"):
        for value in values:
            if (kind, value) not in reduced:
                scalar = op(kind, [value], keepdims=0)
                reduced[kind, value] = op("Reshape", [scalar, _vector(body)])
            parts.append(reduced[kind, value])
    joined = op("Concat", parts, axis=0)
    result = op("Reshape", [joined, shape])
    result.name = _RANGES
    result.type, result.shape = onnx_ir.TensorType(onnx_ir.DataType.FLOAT), onnx_ir.Shape([2, len(values)])
    return result


def _vector(body: onnx_ir.Graph) -> onnx_ir.Value:
    name = "collage.ranges.vector"
    if name not in body.initializers:
        tensor = onnx_ir.tensor(np.asarray([1], np.int64), name=name)
        body.register_initializer(
            onnx_ir.Value(
                name=name, shape=onnx_ir.Shape([1]), type=onnx_ir.TensorType(onnx_ir.DataType.INT64), const_value=tensor
            )
        )
    return body.initializers[name]
