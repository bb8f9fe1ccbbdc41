"""Quantise the operands of float32 products to 8 bits, in the form that toolchains take for integer kernels.

Each chosen product reads its operands through a QuantizeLinear and a DequantizeLinear: the activation as uint8 with
one scale and zero point for the tensor, the weight as int8 with a scale for each output channel and no zero point.
Products of uint8 and int8 are what AVX512_VNNI and AVX_VNNI multiply (Intel Architecture Instruction Set Extensions
Programming Reference, VPDPBUSD), and weights without zero points need no correction of sums (Krishnamoorthi,
"Quantizing deep convolutional networks for efficient inference", 2018, sections 2.2 and 2.4).

Other toolchains multiply int8 by int8 and know no zero points: with `SymmetricRange` the activation is int8, too.

The pairs are standard ONNX. So any evaluator computes what quantisation does to a value, and a compiler that recognises
a product of dequantised operands multiplies integers. In a function, whose weights are arguments, a weight is float32
and has a QuantizeLinear of its own; `fold_quantised_weights` computes these before a compiler sees them.

Of a product without a range only the weight is quantised: what it reads from memory is bytes, what it computes in
stays float32. That is for products of few rows, whose time is that of reading the weight.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import onnx_ir

from collage_core.ir.values.content import constant_of

_LEVELS: Final = 255
"""Steps between the least and the largest uint8."""
_WEIGHTS_ALONE: Final = "int8-weights"
"""Name of the form in which only weights are quantised."""
_SIGNED_LEVELS: Final = 127
"""Steps between zero and the largest int8."""
_LEAST_SHARE: Final = 1e-3
"""Smallest scale of a channel relative to the largest of its weight.

Libraries add a bias in units of the scales of both operands, as int32: where a channel has next to no weights, but a
bias, those units would be too small for it.
"""
_LEAST_SCALE: Final = float(np.finfo(np.float32).tiny) * 1024
"""Smallest scale of all."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Range:
    """The range of an activation, which always contains zero, so that zero is exact.

    Attributes:
        low: Number that the least integer stands for, at most 0.
        high: Number that the largest integer stands for, at least 0.
        form: Name of the form in which a product with such a range is quantised, which is part of structural hashes.
    """

    form: ClassVar[str] = "int8"

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= 0 <= self.high):
            raise ValueError(f"the range from {self.low} to {self.high} is not finite, or does not contain zero")

    @classmethod
    def around(cls, low: float, high: float) -> Range:
        """Return the least range that contains two finite numbers and zero.

        Examples:
            >>> Range.around(0.5, 2.0)
            Range(low=0.0, high=2.0)
        """
        return cls(min(0.0, low), max(0.0, high))

    def in_form(self, *, symmetric: bool) -> Range:
        """Return the range of the same numbers in the form that a toolchain takes.

        Args:
            symmetric: Whether it multiplies int8 without a zero point, instead of uint8 with one.

        Examples:
            >>> Range(-1.0, 2.0).in_form(symmetric=True)
            SymmetricRange(low=-1.0, high=2.0)
        """
        return (SymmetricRange if symmetric else Range)(self.low, self.high)

    @property
    def scale(self) -> np.float32:
        """Difference between the numbers that two neighbouring integers stand for."""
        return np.float32(max((self.high - self.low) / _LEVELS, _LEAST_SCALE))

    @property
    def zero_point(self) -> np.integer[Any]:
        """The integer that stands for zero, in the type of all of them.

        Examples:
            >>> int(Range(-1.0, 1.0).zero_point), int(Range(0.0, 6.0).zero_point)
            (127, 0)
        """
        return np.uint8(np.clip(np.rint(-self.low / float(self.scale)), 0, _LEVELS))


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class SymmetricRange(Range):
    """The range of an activation that becomes int8 without a zero point: half of the integers stand for each sign.

    Where an activation has one sign, as behind a Relu, steps are twice those of a `Range`.

    Examples:
        >>> span = SymmetricRange(-1.0, 127.0)
        >>> float(span.scale), span.zero_point
        (1.0, np.int8(0))
    """

    form: ClassVar[str] = "int8.symmetric"

    @property
    def scale(self) -> np.float32:
        """See `Range.scale`."""
        return np.float32(max(max(-self.low, self.high) / _SIGNED_LEVELS, _LEAST_SCALE))

    @property
    def zero_point(self) -> np.integer[Any]:
        """See `Range.zero_point`."""
        return np.int8(0)


@dataclasses.dataclass(frozen=True, slots=True)
class QuantisableProduct:
    """A product whose operands can be quantised.

    Attributes:
        node: The product.
        activation: Its first operand, which is no constant.
        weight: Its second operand, a constant.
        axis: The weight's axis of output channels; None for a single scale.
    """

    node: onnx_ir.Node
    activation: onnx_ir.Value
    weight: onnx_ir.Value
    axis: int | None


def quantisable(node: onnx_ir.Node) -> QuantisableProduct | None:
    """Return a node as a product of a float32 activation and a constant float32 weight; None if it is none.

    Products of two activations are none: they are a small share of the work of the networks that have them. Neither is
    ConvTranspose, for which libraries have no integer kernel.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Conv", "Gemm", "MatMul"):
        return None
    activation, weight = node.inputs[:2]
    if activation is None or weight is None or constant_of(activation) is not None:
        return None
    if activation.dtype != onnx_ir.DataType.FLOAT or weight.dtype != onnx_ir.DataType.FLOAT:
        return None
    tensor = constant_of(weight)
    if tensor is None or not tensor.size:
        return None
    rank = len(tensor.shape)
    match node.op_type:
        case "Conv":
            axis: int | None = 0
        case "Gemm":
            if node.attributes.get_int("transA", 0):
                return None
            axis = 0 if node.attributes.get_int("transB", 0) else 1
        case _:
            if rank < 2:
                return None
            axis = 1 if rank == 2 else None
    return QuantisableProduct(node, activation, weight, axis)


def weight_scales(weight: np.ndarray[Any, Any], axis: int | None) -> np.ndarray[Any, Any]:
    """Return the scales of a weight.

    Args:
        weight: The weight.
        axis: Axis of output channels; None for a single scale.

    Returns:
        A float32 vector with a scale for each channel, or a float32 scalar.

    Examples:
        >>> weight_scales(np.float32([[127.0, 0.0], [-254.0, 0.5]]), 0)
        array([1., 2.], dtype=float32)
    """
    others = None if axis is None else tuple(each for each in range(weight.ndim) if each != axis)
    largest = np.max(np.abs(weight), axis=others, initial=0.0)
    least = max(_LEAST_SHARE * float(np.max(largest, initial=0.0)) / _SIGNED_LEVELS, _LEAST_SCALE)
    return np.asarray(np.maximum(largest / _SIGNED_LEVELS, least), dtype=np.float32)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Int8Product:
    """A product of a graph whose operands are quantised.

    Attributes:
        node: Index of the product, which is `quantisable`.
        span: Range of its activation; None if only its weight is quantised.
    """

    node: int
    span: Range | None

    @property
    def form(self) -> str:
        """Name of the form in which it is quantised, which is part of structural hashes."""
        return _WEIGHTS_ALONE if self.span is None else self.span.form


def quantise_products(
    graph: onnx_ir.Graph,
    chosen: Iterable[tuple[onnx_ir.Node, Range | None, QuantisableProduct]],
    *,
    constants_are_nodes: bool,
) -> None:
    """Have products read their operands through pairs of QuantizeLinear and DequantizeLinear, in place.

    An activation that several of them read in one range is quantised once, and dequantised for each: toolchains
    recognise an integer kernel by conversions that nothing else reads.

    Args:
        graph: The graph, in which constants may be inputs.
        chosen: Products, each with the range of its activation (None if that is not quantised) and the product that it
            is a copy of, whose weight has a value.
        constants_are_nodes: Whether scales and zero points are Constant nodes, as in a function, or initializers.
    """
    inserting = _Inserting(graph, constants_are_nodes)
    for node, span, original in chosen:
        tensor = constant_of(original.weight)
        assert tensor is not None
        if span is not None:
            inserting.activation(node, span)
        inserting.weight(node, weight_scales(tensor.numpy(), original.axis), original.axis)


def fold_quantised_weights(graph: onnx_ir.Graph) -> frozenset[str]:
    """Replace each QuantizeLinear of constants by an initializer, in place; return the names of these.

    They are computed when first read. Weights that nothing else reads are dropped.
    """
    made: set[str] = set()
    for node in [node for node in graph if node.op_type == "QuantizeLinear" and node.domain == ""]:
        operands = [constant_of(value) for value in node.inputs]
        if len(operands) != 3 or None in operands:
            continue
        weight, narrow = node.inputs[0], node.outputs[0]
        assert weight is not None
        tensor = _quantised(str(narrow.name), operands, node.attributes.get_int("axis", 1))
        value = onnx_ir.Value(name=narrow.name, type=narrow.type, shape=tensor.shape, const_value=tensor)
        narrow.replace_all_uses_with(value)
        graph.remove(node, safe=True)
        graph.register_initializer(value)
        if not weight.uses() and weight.is_initializer() and not weight.is_graph_output():
            del graph.initializers[str(weight.name)]
        made.add(str(narrow.name))
    return frozenset(made)


def _quantised(name: str, operands: Sequence[onnx_ir.TensorProtocol | None], axis: int) -> onnx_ir.LazyTensor:
    """Return what ONNX's QuantizeLinear gives, computed on demand: rounded half to even, saturated."""
    weight, scale, zero = operands
    assert weight is not None
    assert scale is not None
    assert zero is not None
    dtype = zero.dtype

    def compute() -> onnx_ir.TensorProtocol:
        array, steps, middle = (np.asarray(each.numpy()) for each in (weight, scale, zero))
        if steps.ndim:
            along = [1] * array.ndim
            along[axis] = -1
            steps, middle = steps.reshape(along), middle.reshape(along)
        limits = np.iinfo(middle.dtype)
        whole = np.clip(np.rint(array / steps) + middle, limits.min, limits.max).astype(middle.dtype)
        return onnx_ir.Tensor(whole, dtype=dtype, name=name)

    shape = onnx_ir.Shape(weight.shape.numpy())
    return onnx_ir.LazyTensor(compute, dtype=dtype, shape=shape, cache=True, name=name)


class _Inserting:
    """State of the insertion into one graph."""

    def __init__(self, graph: onnx_ir.Graph, constants_are_nodes: bool) -> None:
        self._graph = graph
        self._constants_are_nodes = constants_are_nodes
        self._taken = {str(value.name) for value in _values(graph)}
        self._narrow: dict[tuple[onnx_ir.Value, Range], tuple[onnx_ir.Value, onnx_ir.Value, onnx_ir.Value]] = {}

    def activation(self, node: onnx_ir.Node, span: Range) -> None:
        value = node.inputs[0]
        assert value is not None
        if (value, span) not in self._narrow:
            scale = self._constant(f"{value.name}.scale", np.asarray(span.scale), node)
            zero = self._constant(f"{value.name}.zero_point", np.asarray(span.zero_point), node)
            dtype = onnx_ir.DataType.from_numpy(span.zero_point.dtype)
            narrow = self._inserted("QuantizeLinear", (value, scale, zero), dtype, node, None)
            self._narrow[value, span] = (narrow, scale, zero)
        wide = self._inserted("DequantizeLinear", self._narrow[value, span], onnx_ir.DataType.FLOAT, node, None)
        node.replace_input_with(0, wide)

    def weight(self, node: onnx_ir.Node, scales: np.ndarray[Any, Any], axis: int | None) -> None:
        value = node.inputs[1]
        assert value is not None
        scale = self._constant(f"{value.name}.scale", scales, node)
        zero = self._constant(f"{value.name}.zero_point", np.zeros(scales.shape, np.int8), node)
        narrow = self._inserted("QuantizeLinear", (value, scale, zero), onnx_ir.DataType.INT8, node, axis)
        wide = self._inserted("DequantizeLinear", (narrow, scale, zero), onnx_ir.DataType.FLOAT, node, axis)
        node.replace_input_with(1, wide)

    def _inserted(
        self,
        op_type: str,
        operands: tuple[onnx_ir.Value, onnx_ir.Value, onnx_ir.Value],
        dtype: onnx_ir.DataType,
        before: onnx_ir.Node,
        axis: int | None,
    ) -> onnx_ir.Value:
        suffix = "int8" if op_type == "QuantizeLinear" else "float"
        shape = operands[0].shape
        result = onnx_ir.Value(
            name=self._free(f"{operands[0].name}.{suffix}"),
            shape=None if shape is None else shape.copy(),
            type=onnx_ir.TensorType(dtype),
        )
        attributes = {} if axis is None else {"axis": axis}
        node = onnx_ir.node(op_type, operands, attributes, outputs=[result], name=f"{result.name}.node")
        self._graph.insert_before(before, node)
        return result

    def _constant(self, name: str, array: np.ndarray[Any, Any], before: onnx_ir.Node) -> onnx_ir.Value:
        name = self._free(name)
        tensor = onnx_ir.tensor(array, name=name)
        value = onnx_ir.Value(
            name=name, shape=onnx_ir.Shape(array.shape), type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
        )
        if not self._constants_are_nodes:
            self._graph.register_initializer(value)
            return value
        attribute = onnx_ir.AttrTensor("value", tensor)
        self._graph.insert_before(before, onnx_ir.Node("", "Constant", (), [attribute], outputs=[value], name=name))
        return value

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _values(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
