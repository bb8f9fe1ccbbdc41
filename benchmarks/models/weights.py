"""Give declared weights seeded values with which activations keep their scale.

He scaling keeps a chain of convolutions and Relus at unit variance, but not other operators:
pooling, concatenation, residual sums, attention. So the graph is walked once and the mean square of
every tensor is estimated (`moments`); a weight matrix is scaled by the estimate of its input (which
gives exactly He's sqrt(2 / fan_in) after a Relu of unit variance), and BatchNormalization gets the
variance it would have seen in training. No model is run, so the bytes depend on the seed alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.moments import UNIT, after

Array = np.ndarray[Any, np.dtype[np.float32]]

# Operators that only move weights about, so the role of the weight is that of the result.
_VIEWS = frozenset({"Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Cast", "Flatten"})
# Standard deviation of the last matrix product, so that a Softmax after it does not saturate.
_LOGIT_STD = 1.5


def is_declared(tensor: TensorProto) -> bool:
    """Return whether an initializer has a shape but no data."""
    return (
        tensor.data_type == TensorProto.FLOAT
        and bool(math.prod(tensor.dims))
        and not tensor.HasField("raw_data")
        and not tensor.float_data
    )


def strip(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make every floating-point weight of a model a declared one, in place.

    Kept are scalars and single values (they are part of the algorithm, such as an epsilon), other dtypes (shapes,
    indices), and what no node uses.

    Returns:
        The same model.
    """
    used = {name for node in model.graph.node for name in node.input}
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name in used and math.prod(tensor.dims) > 1:
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    return model


def fill(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Give each declared weight of a model its values, in place.

    Args:
        model: Its nodes are in topological order.
        seed: With the name of a weight it determines the weight, so weights do not depend on order.

    Returns:
        The same model.

    Raises:
        ValueError: If a declared weight is used in a way that has no rule here.
    """
    graph = model.graph
    declared = {t.name: t for t in graph.initializer if is_declared(t)}
    weights = {tensor.name for tensor in graph.initializer}
    moments = {value.name: UNIT for value in graph.input if value.name not in weights}
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in declared}
    makers = {output: node for node in graph.node for output in node.output}
    values: dict[str, Array] = {}
    alias = {name: name for name in declared}
    # A view keeps the tensor but changes its shape; the shapes here are those that consumers see.
    shapes = {name: tuple(tensor.dims) for name, tensor in declared.items()}
    last = _last_products(graph.node)

    for node in graph.node:
        if node.op_type in _VIEWS and node.input and node.input[0] in alias:
            alias[node.output[0]] = alias[node.input[0]]
            shapes[node.output[0]] = _viewed(node, shapes[node.input[0]], constants)
            continue
        data = next((moments[name] for name in node.input if name in moments), UNIT)
        for index, name in enumerate(node.input):
            origin = alias.get(name)
            if origin is None or origin in values:
                continue
            generator = np.random.default_rng([seed, zlib.crc32(origin.encode())])
            std = _LOGIT_STD if node.output[0] in last else 1.0
            draw = _draw(node, index, shapes[name], data.square, std, generator)
            values[origin] = _unviewed(draw, declared[origin].dims, shapes[name])
        moments.update(dict.fromkeys(node.output, after(node, moments, makers)))

    for name, tensor in declared.items():
        if name not in values:
            raise ValueError(f"no rule gives weight {name!r} of {graph.name!r} values: unused")
        tensor.raw_data = values[name].astype("<f4").tobytes()
    return model


def _draw(
    node: onnx.NodeProto,
    index: int,
    shape: Sequence[int],
    square: float,
    std: float,
    generator: np.random.Generator,
) -> Array:
    """Draw the values of input `index` of `node`; `square` is the mean square of the node's data input."""

    def normal(scale: float) -> Array:
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def uniform(low: float, high: float) -> Array:
        return generator.uniform(low, high, shape).astype(np.float32)

    def matrix(fan_in: int, channel_axis: int) -> Array:
        one_channel = [1] * len(shape)
        one_channel[channel_axis] = shape[channel_axis]
        channel = generator.uniform(0.7, 1.3, one_channel).astype(np.float32)
        return normal(std / math.sqrt(fan_in * square)) * channel

    rules: dict[tuple[str, int], Callable[[], Array]] = {
        ("Conv", 1): lambda: matrix(math.prod(shape[1:]), 0),
        ("Conv", 2): lambda: normal(0.1),
        ("ConvTranspose", 1): lambda: matrix(shape[0] * math.prod(shape[2:]), 1),
        ("ConvTranspose", 2): lambda: normal(0.1),
        ("Gemm", 1): lambda: matrix(*((shape[1], 0) if _trans_b(node) else (shape[0], 1))),
        ("Gemm", 2): lambda: normal(0.1),
        ("MatMul", 1): lambda: matrix(shape[-2], len(shape) - 1),
        ("BatchNormalization", 1): lambda: uniform(0.7, 1.3),
        ("BatchNormalization", 2): lambda: normal(0.2),
        ("BatchNormalization", 3): lambda: normal(0.2 * math.sqrt(square)),
        ("BatchNormalization", 4): lambda: uniform(0.8 * square, 1.3 * square),
        ("LayerNormalization", 1): lambda: uniform(0.7, 1.3),
        ("LayerNormalization", 2): lambda: normal(0.2),
        ("InstanceNormalization", 1): lambda: uniform(0.7, 1.3),
        ("InstanceNormalization", 2): lambda: normal(0.2),
        ("PRelu", 1): lambda: uniform(0.1, 0.4),
        ("Gather", 0): lambda: normal(0.6),
        ("GRU", 1): lambda: normal(1.0 / math.sqrt(shape[-1] * square)),
        ("GRU", 2): lambda: normal(1.0 / math.sqrt(shape[-1])),
        ("GRU", 3): lambda: normal(0.1),
        ("LSTM", 1): lambda: normal(1.0 / math.sqrt(shape[-1] * square)),
        ("LSTM", 2): lambda: normal(1.0 / math.sqrt(shape[-1])),
        ("LSTM", 3): lambda: normal(0.1),
    }
    rule = rules.get((node.op_type, index))
    if rule is not None:
        return rule()
    if node.op_type in {"Add", "Sub", "Concat"}:
        return normal(0.1)
    if node.op_type in {"Mul", "Div"}:
        return uniform(0.5, 1.0)
    raise ValueError(f"no rule for input {index} of {node.op_type} node {node.name!r}: add one to weights.py")


def _last_products(nodes: Sequence[onnx.NodeProto]) -> frozenset[str]:
    """Return the output of the last Conv, Gemm or MatMul: the head, whose results are logits."""
    products = [n for n in nodes if n.op_type in {"Conv", "Gemm", "MatMul"}]
    return frozenset(products[-1].output) if products else frozenset()


def _trans_b(node: onnx.NodeProto) -> bool:
    return any(a.name == "transB" and a.i for a in node.attribute)


def _viewed(node: onnx.NodeProto, shape: Sequence[int], constants: Mapping[str, TensorProto]) -> tuple[int, ...]:
    """Return the shape after a view; operators that do not occur in exports leave it unchanged."""
    if node.op_type == "Reshape" and node.input[1] in constants:
        target = [int(size) for size in numpy_helper.to_array(constants[node.input[1]])]
        reshaped: tuple[int, ...] = np.empty(tuple(shape), dtype=np.bool_).reshape(target).shape
        return reshaped
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Transpose":
        axes = attributes.get("perm") or list(reversed(range(len(shape))))
        return tuple(shape[axis] for axis in axes)
    if node.op_type == "Unsqueeze" and "axes" in attributes:
        result = list(shape)
        for axis in sorted(attributes["axes"]):
            result.insert(axis, 1)
        return tuple(result)
    return tuple(shape)


def _unviewed(draw: Array, dims: Sequence[int], seen: Sequence[int]) -> Array:
    """Return the values in the layout of the weight itself; exports transpose matrices only."""
    if tuple(seen) == tuple(dims):
        return draw
    if tuple(reversed(seen)) == tuple(dims):
        return np.ascontiguousarray(draw.T)
    return draw.reshape(tuple(dims))
