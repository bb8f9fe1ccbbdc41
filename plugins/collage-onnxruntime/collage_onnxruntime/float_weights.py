"""Store 8-bit weights as the floating-point numbers that they stand for, where only weights are in 8 bits.

ONNX Runtime fuses a MatMul with its dequantised weight into one operator (`MatMulNBits`), which either rounds
activations to 8 bits, too, or takes 30 to 40 times as long as MatMul: one row by 4096x4096 took 81 ms instead of 2.6
(ONNX Runtime 1.32, AVX512_VNNI). Before other products it dequantises the weight in each run. Weights in 4 bits have a
fast kernel that computes in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from collage_onnxruntime.weights import add_initializer

_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})
_WEIGHT = 1
"""Operand that is the weight."""


def with_float_weights(model: onnx_ir.Model) -> onnx_ir.Model:
    """Return the model with the weights of such products as initializers, or the model itself if it has none.

    Args:
        model: The model; it is not modified.
    """
    if not any(_dequantised(node) for node in model.graph):
        return model
    copy = model.clone()
    made: dict[onnx_ir.Value, onnx_ir.Value] = {}
    for node in copy.graph:
        if (source := _dequantised(node)) is None:
            continue
        weight = node.inputs[_WEIGHT]
        assert weight is not None
        if weight not in made:
            made[weight] = add_initializer(copy.graph, f"{weight.name}.float", _numbers(source))
        node.replace_input_with(_WEIGHT, made[weight])
    for weight in made:
        source = weight.producer()
        if source is not None and not weight.uses() and not weight.is_graph_output():
            given = [value for value in source.inputs if value is not None]
            copy.graph.remove(source, safe=True)  # ONNX Runtime would compute it in each run
            for value in given:
                if not value.uses() and not value.is_graph_output():
                    copy.graph.initializers.pop(str(value.name), None)  # it knows no weight that nothing reads
    return copy


def _dequantised(node: onnx_ir.Node) -> onnx_ir.Node | None:
    """Return the node that dequantises a product's constant 8-bit weight; None if activations are quantised, too."""
    if node.op_type not in _PRODUCTS or node.domain or len(node.inputs) <= _WEIGHT:
        return None
    activation, weight = node.inputs[:2]
    source = None if weight is None else weight.producer()
    if source is None or source.op_type != "DequantizeLinear" or source.domain:
        return None
    constants = [None if value is None else value.const_value for value in source.inputs]
    if any(value is not None and constant is None for value, constant in zip(source.inputs, constants, strict=True)):
        return None
    if constants[0] is None or constants[0].dtype not in (onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8):
        return None
    before = None if activation is None else activation.producer()
    return None if before is not None and before.op_type == "DequantizeLinear" else source


def _numbers(node: onnx_ir.Node) -> np.ndarray[Any, Any]:
    """Compute a DequantizeLinear of constants, as the standard has it: for all, by axis, or by blocks of one axis."""
    quantised, scale, *zero = [None if value is None else value.const_value for value in node.inputs]
    assert quantised is not None
    assert scale is not None
    integers, scales = quantised.numpy().astype(np.int32), scale.numpy()
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)

    def spread(parameter: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if block:
            repeated: np.ndarray[Any, Any] = np.repeat(parameter, block, axis)
            return repeated.take(range(integers.shape[axis]), axis)
        if parameter.size == 1:
            return parameter.reshape(())
        return parameter.reshape([-1 if at == axis % integers.ndim else 1 for at in range(integers.ndim)])

    if zero and zero[0] is not None:
        integers = integers - spread(zero[0].numpy()).astype(np.int32)
    numbers: np.ndarray[Any, Any] = integers.astype(scales.dtype) * spread(scales)
    return numbers
