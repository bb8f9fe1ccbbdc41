"""ONNX's node tests of single operators, as functions for the plugin."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from collage_core.contract import KernelFunction, Supported, TensorSpec, ValueKind
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_halide.patterns import takes

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeCase:
    """A case.

    Attributes:
        name: Its name.
        operator: Its operator.
        function: Its node as a function; inputs that have to be known are constants.
        inputs: What its inputs are.
        outputs: What its outputs are to be.
        rtol: Relative tolerance of the test suite.
        atol: Absolute tolerance of the test suite.
    """

    name: str
    operator: str
    function: KernelFunction
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    rtol: float
    atol: float


def claimed_cases() -> Iterator[NodeCase]:
    """Yield the cases of one node each that the plugin takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = list(load_model_tests(kind="node"))
    for case in cases:
        model = case.model
        if model is None or len(model.graph.node) != 1 or not case.data_sets:
            continue
        for data in itertools.islice(case.data_sets, 1):
            if any(isinstance(each, list) or each is None for values in data for each in values):
                continue
            inputs, outputs = ([_array(each) for each in values] for values in data)
            if any(each.dtype == object for each in (*inputs, *outputs)):
                continue
            found = _claimed(model, inputs)
            if found is not None:
                function, free = found
                yield NodeCase(
                    name=case.name,
                    operator=model.graph.node[0].op_type,
                    function=function,
                    inputs=free,
                    outputs=outputs,
                    rtol=case.rtol,
                    atol=case.atol,
                )


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _claimed(model: onnx.ModelProto, inputs: Sequence[Array]) -> tuple[KernelFunction, list[Array]] | None:
    """Return the model as a function that the plugin takes: with all inputs free, or with the first one only."""
    for known in (False, True):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        free = list(inputs)
        if known:
            free = list(inputs[:1])
            for value, array in list(zip(model.graph.input, inputs, strict=True))[1:]:
                copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
            del copy.graph.input[1:]
        function = _function(copy)
        if function is None:
            return None
        graph = DataflowGraph(function.model)
        if len(graph.nodes) == 1 and isinstance(takes(NodeContext(graph, 0)), Supported):
            return function, free
    return None


def _function(proto: onnx.ModelProto) -> KernelFunction | None:
    model = onnx_ir.from_proto(proto)
    specs = []
    for value in (*model.graph.inputs, *model.graph.outputs):
        shape = value.shape
        if value.dtype is None or shape is None or not all(isinstance(each, int) for each in shape):
            return None
        extents = tuple(int(each) for each in shape.numpy())
        specs.append(TensorSpec(name=str(value.name), kind=ValueKind.PLANNED, dtype=value.dtype, shape=extents))
    count = len(model.graph.inputs)
    return KernelFunction(name="case", model=model, inputs=tuple(specs[:count]), outputs=tuple(specs[count:]))
