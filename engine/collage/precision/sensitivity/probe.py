"""A model that rounds chosen products and says by how much its outputs change, built once for all choices."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir

from collage.build.verifying.output_check import bounded_values, random_values
from collage.measure.driver.capture import Capture
from collage.precision.sensitivity.groups import ProductGroup
from collage.precision.sensitivity.series import as_function
from collage.reference.conditioning import conditioning_of
from collage_core.contract import KernelFunction
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Range, quantisable, weight_scales
from collage_core.ir.values.content import constant_of

INT8, INT8_WEIGHTS, BF16 = "collage.int8", "collage.int8-weights", "collage.bf16"
"""Inputs of the model: a boolean for each group of products; `INT8` rounds activations, `INT8_WEIGHTS` weights."""
_EXPECTED: Final = "collage.expected."
_BITS_OF_BF16: Final = 8
_BITS_OF_FLOAT: Final = 24
"""Bits of a significand, the leading one included."""
_TINY: Final = 1e-30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The model as a function, and what its inputs are.

    Attributes:
        function: Has the inputs of the model, what its outputs should be, and `INT8`, `INT8_WEIGHTS` and `BF16`. Its
            one output holds the error of each output, as `Discrepancy.error` is defined.
        values: By name of an input that is the same in all runs, name of the value in the capture.
    """

    function: KernelFunction
    values: Mapping[str, str]


def probe_of(graph: DataflowGraph, groups: Sequence[ProductGroup], capture: Capture) -> Probe | None:
    """Return the probe of a model; None if it has no output that says anything.

    A group's products read operands rounded where their booleans are set: to 8 bits through QuantizeLinear and
    DequantizeLinear, or to the 8 bits of a bfloat16's significand (T. J. Dekker, "A floating-point technique for
    extending the available precision", Numerische Mathematik 18, 1971, section 5: the upper part of a number).

    Args:
        graph: The prepared model's graph.
        groups: Products that are rounded together.
        capture: A run of the model: what its outputs should be.
    """
    made = _Building(graph)
    for number, group in enumerate(groups):
        for product in group.products:
            assert product.span is not None
            made.round_operands(product.node, product.span, number)
    return made.finished(capture, len(groups))


class _Building:
    """State of the construction, over a copy of the model."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._model = graph.model.clone()
        self._body = self._model.graph
        place = {node: number for number, node in enumerate(graph.model.graph)}
        copies = list(self._body)
        self._nodes = [copies[place[node]] for node in graph.nodes]
        self._count = 0
        self._choices = {
            name: onnx_ir.Value(name=name, type=onnx_ir.TensorType(onnx_ir.DataType.BOOL))
            for name in (INT8, INT8_WEIGHTS, BF16)
        }
        self._chosen: dict[tuple[str, int], onnx_ir.Value] = {}
        self._rounded: dict[tuple[onnx_ir.Value, Range | None, int], onnx_ir.Value] = {}
        self._first = copies[0]

    def round_operands(self, index: int, span: Range, group: int) -> None:
        """Have a product read operands that are rounded where its group is chosen."""
        node = self._nodes[index]
        product = quantisable(self._graph.nodes[index])
        activation, weight = node.inputs[:2]
        assert product is not None
        assert activation is not None
        assert weight is not None
        key = (activation, span, group)
        if key not in self._rounded:
            scale, zero = np.asarray(span.scale), np.asarray(span.zero_point)
            self._rounded[key] = self._where(node, activation, INT8, group, scale, zero, None)
        node.replace_input_with(0, self._rounded[key])
        tensor = constant_of(product.weight)
        assert tensor is not None
        scales = weight_scales(tensor.numpy(), product.axis)
        zeros = np.zeros(scales.shape, np.int8)
        node.replace_input_with(1, self._where(node, weight, INT8_WEIGHTS, group, scales, zeros, product.axis))

    def _where(
        self,
        before: onnx_ir.Node,
        value: onnx_ir.Value,
        int8: str,
        group: int,
        scale: np.ndarray[Any, Any],
        zero: np.ndarray[Any, Any],
        axis: int | None,
    ) -> onnx_ir.Value:
        attributes = {} if axis is None else {"axis": axis}
        steps, middle = self._constant(scale), self._constant(zero)
        narrow = self._op(before, "QuantizeLinear", [value, steps, middle], attributes)
        eight = self._op(before, "DequantizeLinear", [narrow, steps, middle], attributes)
        # the upper part of a number, by Dekker's algorithm; compilers that drop a Cast there and back keep it
        large = self._op(
            before, "Mul", [value, self._constant(np.float32(2.0 ** (_BITS_OF_FLOAT - _BITS_OF_BF16) + 1))]
        )
        upper = self._op(before, "Sub", [large, self._op(before, "Sub", [large, value])])
        either = self._op(before, "Where", [self._choice(BF16, group), upper, value])
        return self._op(before, "Where", [self._choice(int8, group), eight, either])

    def _choice(self, name: str, group: int) -> onnx_ir.Value:
        if (name, group) not in self._chosen:
            at = self._constant(np.asarray(group, np.int64))
            self._chosen[name, group] = self._op(self._first, "Gather", [self._choices[name], at], {"axis": 0})
        return self._chosen[name, group]

    def finished(self, capture: Capture, groups: int) -> Probe | None:
        """Return the model with errors for outputs."""
        by_name = {str(value.name): value for value in self._body.inputs}
        by_name |= {str(value.name): value for node in self._nodes for value in node.outputs}
        chance = random_values(self._graph)
        errors: list[onnx_ir.Value] = []
        values = {str(value.name): str(value.name) for value in self._body.inputs if constant_of(value) is None}
        known = [names for output, names in bounded_values(self._graph).items() if output not in chance]
        for compared in dict.fromkeys(itertools.chain.from_iterable(known)):
            value = by_name.get(compared)
            if value is None or compared not in capture or value.dtype is None:
                continue
            wanted = capture.value(compared)
            if not isinstance(wanted, np.ndarray) or not wanted.size or wanted.dtype.kind not in "fiub":
                continue
            expected = onnx_ir.Value(name=_EXPECTED + compared, type=value.type, shape=onnx_ir.Shape(np.shape(wanted)))
            self._body.inputs.append(expected)
            values[str(expected.name)] = compared
            errors.append(self._error(value, expected, wanted))
        if not errors:
            return None
        shape = self._constant(np.asarray([1], np.int64))
        flat = [self._op(None, "Reshape", [error, shape]) for error in errors]
        result = flat[0] if len(flat) == 1 else self._op(None, "Concat", flat, {"axis": 0})
        result.type, result.shape = onnx_ir.TensorType(onnx_ir.DataType.FLOAT), onnx_ir.Shape([len(flat)])
        for choice in self._choices.values():
            choice.shape = onnx_ir.Shape([groups])
            self._body.inputs.append(choice)
        self._body.outputs.clear()
        self._body.outputs.append(result)
        self._body.sort()
        return Probe(function=as_function("probe", self._model), values=values)

    def _error(self, value: onnx_ir.Value, expected: onnx_ir.Value, wanted: np.ndarray[Any, Any]) -> onnx_ir.Value:
        """Return the error of an output: the largest difference relative to its scale, or the share that differs."""
        axes: dict[str, Any] = {"keepdims": 0}
        if wanted.dtype.kind != "f":
            same = self._op(None, "Cast", [self._op(None, "Equal", [value, expected])], {"to": 1})
            other = self._op(None, "Sub", [self._constant(np.float32(1)), same])
            return self._op(None, "ReduceMean", [other], axes)
        known = conditioning_of(wanted)
        both = [value, expected]
        if wanted.dtype != np.float32:
            both = [self._op(None, "Cast", [each], {"to": 1}) for each in both]
        limit = np.finfo(np.float32).max if known.sentinel is None else known.sentinel
        usual = self._op(None, "Less", [self._op(None, "Abs", [both[1]]), self._constant(np.float32(limit))])
        difference = self._op(None, "Abs", [self._op(None, "Sub", both)])
        counted = self._op(None, "Where", [usual, difference, self._constant(np.float32(0))])
        relative = self._op(None, "Div", [counted, self._constant(np.float32(max(known.scale, _TINY)))])
        return self._op(None, "ReduceMax", [relative], axes)

    def _op(
        self,
        before: onnx_ir.Node | None,
        op_type: str,
        operands: Sequence[onnx_ir.Value],
        attributes: Mapping[str, Any] | None = None,
    ) -> onnx_ir.Value:
        """Insert a node before another, or append it, and return its result."""
        self._count += 1
        result = onnx_ir.Value(name=f"collage.probe.{self._count}")
        node = onnx_ir.node(op_type, operands, attributes or {}, outputs=[result], name=f"{result.name}.node")
        if before is None:
            self._body.append(node)
        else:
            self._body.insert_before(before, node)
        return result

    def _constant(self, array: np.ndarray[Any, Any] | np.generic) -> onnx_ir.Value:
        self._count += 1
        name = f"collage.probe.{self._count}"
        tensor = onnx_ir.tensor(np.asarray(array), name=name)
        value = onnx_ir.Value(
            name=name, shape=onnx_ir.Shape(np.shape(array)), type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
        )
        self._body.register_initializer(value)
        return value
