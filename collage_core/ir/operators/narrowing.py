"""Products of float32 with their operands rounded to a 16-bit type: what a target of lower precision computes.

A product of two 16-bit floats is exact in float32, and tensor cores add such products up in float32. So what is lost is
lost where the operands are rounded, and there alone: sums, biases, activations, normalisations and what leaves a kernel
stay float32. Rounding those too would gain nothing inside a kernel, whose intermediate results are in registers, and
lose a lot: masks of -3e38 and epsilons of 1e-12 are no float16s.

Said in standard ONNX: a Cast to the type and one back before each product, and weights held in the type. Any evaluator
computes that model, so it says what is right; a compiler that sees a product of numbers that were widened multiplies
the narrow ones. In mixed-precision training the same is done to operands for the same reason (Micikevicius et al.,
Mixed Precision Training, ICLR 2018, section 3.3: products of half precision, sums of single).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import ml_dtypes
import numpy as np
import onnx_ir

from collage_core.ir.values.content import constant_of

PRODUCTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"Conv": (0, 1), "ConvTranspose": (0, 1), "Gemm": (0, 1), "MatMul": (0, 1)}
)
"""Places of the two operands that are multiplied, by operator. A bias is added, so it stays as it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Narrowed:
    """A model whose products are of 16-bit operands.

    Attributes:
        model: It; initializers that it shares with the original are the same tensors.
        weights: By name of a new initializer, name of the one it is converted from.
    """

    model: onnx_ir.Model
    weights: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Overflow:
    """Why there is no such model: a weight has a number that the type cannot hold.

    Attributes:
        weight: Name of the initializer.
        magnitude: Of its largest number.
        largest: The type's largest number.
    """

    weight: str
    magnitude: float
    largest: float


def narrowed_products(model: onnx_ir.Model, dtype: onnx_ir.DataType) -> Narrowed | Overflow:
    """Rounds the float32 operands of a model's products to a 16-bit type.

    Operands of other types, everything that is no operand of one of `PRODUCTS`, inputs and outputs, and what is inside
    of If, Loop, Scan and functions stay as they are. Doing it twice changes nothing.

    Args:
        model: A model with static or dynamic shapes; it is not changed.
        dtype: `FLOAT16` or `BFLOAT16`.

    Returns:
        The model, its converted weights made when they are first read; or the weight that is out of range.
    """
    copy = model.clone()
    narrowing = _Narrowing(copy.graph, dtype)
    for node in list(copy.graph):
        if node.domain not in ("", "ai.onnx"):
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
    """Whether a weight's largest finite number becomes infinite in another type; reads the weight."""
    array = np.asarray(tensor.numpy())
    magnitude = np.max(np.abs(array), where=np.isfinite(array), initial=0.0)
    with np.errstate(over="ignore"):
        held = np.asarray(magnitude).astype(dtype.numpy())
    if np.isfinite(held.astype(np.float64)):
        return None
    return Overflow(name, float(magnitude), float(ml_dtypes.finfo(dtype.numpy()).max))


def _is_widened(value: onnx_ir.Value) -> bool:
    """Whether a value is a 16-bit float as float32."""
    node = value.producer()
    if node is None or node.op_type != "Cast" or node.inputs[0] is None:
        return False
    return node.inputs[0].dtype in (onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16)


class _Narrowing:
    """What was rounded so far, each value once.

    Args:
        graph: Is changed.
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
        """A value rounded, as float32 again; computed before a node, which is the first to read it."""
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
        """A name nothing in the graph has."""
        taken = {str(value.name) for node in self._graph for value in node.outputs}
        taken |= {str(value.name) for value in self._graph.inputs} | set(self._graph.initializers)
        while name in taken:
            name += "_"
        return name
