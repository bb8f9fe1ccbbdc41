"""A group of operators as stages: what is to be scheduled and compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir

from collage_core.contract import KernelFunction
from collage_core.ir.values.content import constant_of
from collage_halide.elements import ELEMENT_TYPES, element_type
from collage_halide.op import Op, shape_of, without_ones
from collage_halide.operators.table import operator_of
from collage_halide.scope import Scope
from collage_halide.stages import Given, Place, Stage
from collage_halide.values import Number, Value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The stages of a group.

    Attributes:
        stages: All of them, each after those it reads.
        places: Arguments of the kernel: what it reads, then what it writes.
        strict: Whether floats are computed as written.
    """

    stages: Sequence[Stage]
    places: Sequence[Place]
    strict: bool

    @property
    def outputs(self) -> list[Stage]:
        """The stages that are written to outputs, each to one or to several, in the order of the places."""
        return [stage for stage in self.stages if stage.role == "output"]


def group_of(function: KernelFunction, vector_bytes: int, threads: int) -> Group:
    """Return the stages of a function, made anew: schedules change them.

    Args:
        function: The function.
        vector_bytes: Width of the processor's vectors.
        threads: Threads that it will run with.

    Raises:
        Refused: If it has none.
    """
    graph = function.model.graph
    scope = Scope(vector_bytes, threads)
    values: dict[onnx_ir.Value, Value] = {}
    for position, value in enumerate(graph.inputs):
        if value.dtype in ELEMENT_TYPES:
            values[value] = Given(scope, "in", position, shape_of(value), element_type(value))
    for node in graph:
        op = Op(node, graph.opset_imports.get(node.domain) or function.model.opset_imports.get(node.domain, 0))
        operator = operator_of(op)
        operands = [None if each is None else _operand(scope, each, values) for each in node.inputs]
        made = zip(node.outputs, operator.define(scope, op, operands), strict=False)
        values.update((value, _declared(scope, value, each)) for value, each in made if each is not None)
    for results in _of_one_shape([_operand(scope, value, values) for value in graph.outputs]):
        scope.outputs(results)
    outputs = [place for place in scope.places.values() if place.where == "out"]
    read = [place for place in scope.places.values() if place.where != "out"]
    return Group(stages=scope.stages, places=[*read, *outputs], strict=scope.strict)


def _of_one_shape(results: Sequence[Value]) -> list[list[tuple[int, Value]]]:
    """Return results with their positions, those together that loops of the same extents can write; without empty ones.

    They are computed for one element after the other, so what two of them read is read once.
    """
    found: dict[tuple[int, ...], list[tuple[int, Value]]] = {}
    for position, result in enumerate(results):
        if result.size:
            found.setdefault(without_ones(result.shape), []).append((position, result))
    return list(found.values())


def _declared(scope: Scope, value: onnx_ir.Value, made: Value) -> Value:
    """Return what an operator made in the type that ONNX gives it: it may be in the one that was computed in."""
    if value.dtype not in ELEMENT_TYPES or made.kind == element_type(value):
        return made
    return scope.pointwise(made.shape, element_type(value), [made], lambda x: x, 0)


def _operand(scope: Scope, value: onnx_ir.Value, values: Mapping[onnx_ir.Value, Value]) -> Value:
    constant = constant_of(value)
    if value in values or constant is None:
        return values[value]
    kind, shape = element_type(value), shape_of(value)
    if constant.size == 1:
        return Number(np.asarray(constant.numpy()).reshape(-1).astype(object)[0], kind, shape)
    return Given(scope, "weight", str(value.name), shape, kind)
