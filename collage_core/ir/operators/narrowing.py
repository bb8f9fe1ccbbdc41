"""Round the operands of float32 products to a 16-bit type, as lower-precision targets do.

A product of two 16-bit floats is exact in float32, and tensor cores accumulate such products in float32. So the
rounding of the operands is the only loss: sums, biases, activations, normalisations and kernel outputs stay float32.
Rounding those too would gain nothing inside a kernel, whose intermediate results are in registers, and lose a lot:
float16 cannot represent masks of -3e38 and epsilons of 1e-12.

The rounding is expressed in standard ONNX: a Cast to the type and one back before each product, and weights stored in
the type. Any evaluator computes that model, so it defines the correct result; a compiler that recognises a product of
widened numbers multiplies the narrow ones. Mixed-precision training treats operands the same way for the same reason
(Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.3: products of half precision, sums of single).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import ml_dtypes
import numpy as np
import onnx_ir

from collage_core.ir.operators.quantised import is_dequantize
from collage_core.ir.values.content import constant_of

PRODUCTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"Conv": (0, 1), "ConvTranspose": (0, 1), "Gemm": (0, 1), "MatMul": (0, 1)}
)
"""Positions of the two multiplied operands, by operator. A bias is added, so it is not rounded."""


@dataclasses.dataclass(frozen=True, slots=True)
class Narrowed:
    """A model whose products have 16-bit operands.

    Attributes:
        model: The model; initializers that it shares with the original are the same tensors.
        weights: By name of a new initializer, name of the original that it is converted from.
    """

    model: onnx_ir.Model
    weights: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Overflow:
    """Reason why a model cannot be narrowed: a weight exceeds the range of the type.

    Attributes:
        weight: Name of the initializer.
        magnitude: Largest magnitude in the weight.
        largest: Largest number of the type.
    """

    weight: str
    magnitude: float
    largest: float


def narrowed_products(
    model: onnx_ir.Model, dtype: onnx_ir.DataType, *, keep_quantised: bool = False
) -> Narrowed | Overflow:
    """Round the float32 operands of a model's products to a 16-bit type.

    Operands of other types, operands of operators outside `PRODUCTS`, inputs and outputs, and the bodies of If, Loop,
    Scan and functions are unchanged. The transformation is idempotent.

    Args:
        model: A model with static or dynamic shapes; it is not changed.
        dtype: `FLOAT16` or `BFLOAT16`.
        keep_quantised: Whether products of two operands that were just dequantised are left as they are, for
            toolchains that multiply their integers.

    Returns:
        The model, whose weights are converted on first read; or the weight that is out of range.
    """
    copy = model.clone()
    narrowing = _Narrowing(copy.graph, dtype)
    for node in list(copy.graph):
        if node.domain not in ("", "ai.onnx") or (keep_quantised and _is_of_integers(node)):
            continue
        for place in PRODUCTS.get(node.op_type, ()):
            value = node.inputs[place]
            if value is None or value.dtype != onnx_ir.DataType.FLOAT or _is_widened(value):
                continue
            found = narrowing.widened(value, node)
            if isinstance(found, Overflow):
                return found
            node.replace_input_with(place, found)
    for name in set(narrowing.weights.values()):
        original = copy.graph.initializers[name]
        if not original.uses() and not original.is_graph_output() and not original.is_graph_input():
            del copy.graph.initializers[name]
    return Narrowed(copy, MappingProxyType(narrowing.weights))


def overflow(name: str, tensor: onnx_ir.TensorProtocol, dtype: onnx_ir.DataType) -> Overflow | None:
    """Check whether a weight's largest finite number becomes infinite in another type; reads the weight."""
    array = np.asarray(tensor.numpy())
    magnitude = np.max(np.abs(array), where=np.isfinite(array), initial=0.0)
    with np.errstate(over="ignore"):
        held = np.asarray(magnitude).astype(dtype.numpy())
    if np.isfinite(held.astype(np.float64)):
        return None
    return Overflow(name, float(magnitude), float(ml_dtypes.finfo(dtype.numpy()).max))


def _is_widened(value: onnx_ir.Value) -> bool:
    """Return whether a value is a 16-bit float cast to float32."""
    node = value.producer()
    if node is None or node.op_type != "Cast" or node.inputs[0] is None:
        return False
    return node.inputs[0].dtype in (onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16)


def _is_of_integers(node: onnx_ir.Node) -> bool:
    """Return whether both operands of a product are results of DequantizeLinear."""
    operands = [node.inputs[place] for place in PRODUCTS.get(node.op_type, ())]
    producers = [None if value is None else value.producer() for value in operands]
    return bool(producers) and all(each is not None and is_dequantize(each) for each in producers)


class _Narrowing:
    """State of the rounding of one graph, which rounds each value once.

    Args:
        graph: The graph, modified in place.
        dtype: The type.

    Attributes:
        weights: As in `Narrowed`.
    """

    def __init__(self, graph: onnx_ir.Graph, dtype: onnx_ir.DataType) -> None:
        self._graph = graph
        self._dtype = dtype
        self._known: dict[onnx_ir.Value, onnx_ir.Value] = {}
        self.weights: dict[str, str] = {}

    def widened(self, value: onnx_ir.Value, before: onnx_ir.Node) -> onnx_ir.Value | Overflow:
        """Round a value and cast it back to float32, computed before its first reader."""
        if value not in self._known:
            tensor = constant_of(value)
            if tensor is None:
                narrow = self._cast(value, self._dtype, before)
            else:
                if found := overflow(str(value.name), tensor, self._dtype):
                    return found
                narrow = self._converted(value, tensor)
            self._known[value] = self._cast(narrow, onnx_ir.DataType.FLOAT, before)
        return self._known[value]

    def _cast(self, value: onnx_ir.Value, dtype: onnx_ir.DataType, before: onnx_ir.Node) -> onnx_ir.Value:
        result = onnx_ir.Value(
            name=self._free(f"{value.name}.{dtype.name.lower()}"), shape=value.shape, type=onnx_ir.TensorType(dtype)
        )
        node = onnx_ir.node("Cast", [value], {"to": dtype.value}, outputs=[result], name=f"{result.name}.cast")
        self._graph.insert_before(before, node)
        return result

    def _converted(self, value: onnx_ir.Value, tensor: onnx_ir.TensorProtocol) -> onnx_ir.Value:
        name, dtype = self._free(f"{value.name}.{self._dtype.name.lower()}"), self._dtype

        def convert() -> onnx_ir.TensorProtocol:
            return onnx_ir.Tensor(np.asarray(tensor.numpy()).astype(dtype.numpy()), dtype=dtype, name=name)

        shape = onnx_ir.Shape(tensor.shape.numpy())
        lazy = onnx_ir.LazyTensor(convert, dtype=dtype, shape=shape, cache=True, name=name)
        made = onnx_ir.Value(name=name, shape=shape, type=onnx_ir.TensorType(dtype), const_value=lazy)
        self._graph.register_initializer(made)
        self.weights[name] = str(value.name)
        return made

    def _free(self, name: str) -> str:
        """Return a name that is unused in the graph."""
        taken = {str(value.name) for node in self._graph for value in node.outputs}
        taken |= {str(value.name) for value in self._graph.inputs} | set(self._graph.initializers)
        while name in taken:
            name += "_"
        return name
