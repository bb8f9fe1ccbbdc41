"""Rewrite float32 products so that TensorRT multiplies in 16 bits: rounded operands, float32 sums, rounded result.

In a strongly typed network a product computes in the type of its operands, which is its result's, too.
TensorRT multiplies in 16 bits, with float32 sums, if a float32 product has a Cast to a 16-bit type and back
on each operand, and another pair behind it; Torch-TensorRT's option `use_fp32_acc` writes it this way. The
effect was observed in the layers of engines that TensorRT for RTX 1.7.1 built: without the Casts behind a
product it rounds the operands in a kernel of their own and multiplies in float32, which gains nothing. A
Gemm's bias prevents 16-bit products, a convolution's bias is rounded with them. So the result is rounded
once, and a bias is added afterwards, in float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import KernelFunction, Unsupported, in_precision
from collage_core.ir.operators.narrowing import PRODUCTS

_FLOAT = onnx_ir.DataType.FLOAT


def halved(function: KernelFunction, dtype: onnx_ir.DataType) -> KernelFunction | Unsupported:
    """Return a function with its float32 products in a 16-bit type; everything else stays float32.

    The outputs stay float32, too. Products of two dequantised operands are not touched: they are products of integers.

    Args:
        function: The function; it is not changed.
        dtype: `FLOAT16` or `BFLOAT16`.

    Returns:
        The function, with the same name, inputs and outputs; or which weight is out of the type's range.
    """
    narrowed = in_precision(function, dtype, keep_quantised=True)
    if isinstance(narrowed, Unsupported):
        return narrowed
    graph = narrowed.model.graph
    for node in [node for node in graph if _is_narrowed(node, dtype)]:
        _Rounding(graph, node, dtype).apply()
    return dataclasses.replace(narrowed, model=narrowed.model)


def _is_narrowed(node: onnx_ir.Node, dtype: onnx_ir.DataType) -> bool:
    """Return whether all operands that a node multiplies were widened from the type."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in PRODUCTS:
        return False
    operands = (node.inputs[place] for place in PRODUCTS[node.op_type])
    producers = (None if value is None else value.producer() for value in operands)
    return all(
        cast is not None and cast.op_type == "Cast" and cast.inputs[0] is not None and cast.inputs[0].dtype == dtype
        for cast in producers
    )


class _Rounding:
    """Rounds one product's result before its addends.

    Args:
        graph: Graph to modify.
        node: The product.
        dtype: Type to round to.
    """

    def __init__(self, graph: onnx_ir.Graph, node: onnx_ir.Node, dtype: onnx_ir.DataType) -> None:
        self._graph = graph
        self._node = node
        self._dtype = dtype
        self._name = str(node.outputs[0].name)
        self._made: list[onnx_ir.Node] = []

    def apply(self) -> None:
        """Replace the product by one without its bias, two Casts, and the addition of the bias."""
        [old] = self._node.outputs
        factors, *added = (each for each in self._terms())
        value = self._op("Cast", self._op("Cast", factors, to=self._dtype.value), to=_FLOAT.value)
        if (factor := self._number("alpha")) is not None:
            value = self._op("Mul", value, factor)
        for bias in added:
            value = self._op("Add", value, bias)
        onnx_ir.convenience.replace_nodes_and_values(self._graph, self._node, [self._node], self._made, [old], [value])

    def _terms(self) -> Iterator[onnx_ir.Value]:
        """Yield the product of both factors alone; then the bias, as it is added to the product."""
        node = self._node
        kept = {key: each for key, each in node.attributes.items() if key not in ("alpha", "beta")}
        yield self._op(node.op_type, *(each for each in node.inputs[:2] if each is not None), **kept)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is None:
            return
        if node.op_type == "Gemm":
            factor = self._number("beta")
            yield bias if factor is None else self._op("Mul", bias, factor)
            return
        assert node.outputs[0].shape is not None
        axes = list(range(1, len(node.outputs[0].shape) - 1))
        yield self._op("Unsqueeze", bias, self._constant("axes", np.array(axes, np.int64)))

    def _number(self, attribute: str) -> onnx_ir.Value | None:
        """Return a Gemm's factor as a constant; None if it is 1."""
        given = self._node.attributes.get(attribute)
        if given is None or given.as_float() == 1.0:
            return None
        return self._constant(attribute, np.array(given.as_float(), np.float32))

    def _constant(self, label: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> onnx_ir.Value:
        tensor = onnx_ir.tensor(array, name=self._named(label))
        value = onnx_ir.val(str(tensor.name), tensor.dtype, array.shape, const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def _op(self, op_type: str, *inputs: onnx_ir.Value, **attributes: Any) -> onnx_ir.Value:
        dtype = onnx_ir.DataType(attributes["to"]) if op_type == "Cast" else _FLOAT
        result = onnx_ir.Value(name=self._named(f"{len(self._made)}"), type=onnx_ir.TensorType(dtype))
        self._made.append(onnx_ir.node(op_type, inputs, attributes, outputs=[result], name=result.name))
        return result

    def _named(self, label: str) -> str:
        """Return a name that is unused in the graph."""
        taken = {str(value.name) for node in self._graph for value in node.outputs}
        taken |= {str(value.name) for value in self._graph.inputs} | set(self._graph.initializers)
        name = f"{self._name}.halved.{label}"
        while name in taken:
            name += "_"
        return name
