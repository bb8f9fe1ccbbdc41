"""What blocks compute, written from their definitions with NumPy, and what a match computes, by ONNX's evaluator."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir
from onnx.reference import ReferenceEvaluator

from collage_core.ir.graph.extract import extract
from collage_core.patterns import Match
from collage_core.patterns.library.attention_facts import Attention

Array = npt.NDArray[np.floating]
Values = Mapping[onnx_ir.Value, np.ndarray]


def computed(match: Match, seed: int = 0) -> tuple[np.ndarray, Values]:
    """The matched value on random inputs, by ONNX's evaluator; and the values of all that goes in.

    Masks let each query see its first key, so that no row is empty.
    """
    block = extract(match.graph, match.nodes, name="block")
    draw = np.random.default_rng(seed)
    values: dict[onnx_ir.Value, np.ndarray] = {}
    feeds = {}
    for spec, value in zip(block.inputs, block.input_values, strict=True):
        array: np.ndarray = draw.normal(size=spec.static_shape).astype(spec.numpy_dtype)
        if spec.dtype == onnx_ir.DataType.BOOL:
            array = draw.random(spec.static_shape) < 0.5
            array[..., 0] = all(value is not match.captures.get(name) for name in ("masked_where",))
        values[value] = feeds[spec.name] = array
    for value in block.constant_values:
        assert value.const_value is not None
        values[value] = np.asarray(value.const_value.numpy())
    outputs = ReferenceEvaluator(onnx_ir.to_proto(block.model)).run(None, feeds)
    result: np.ndarray = outputs[[each is match.value for each in block.output_values].index(True)]
    return result, values


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def quick_gelu(x: Array) -> Array:
    return x / (1 + np.exp(-1.702 * x))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def layer_norm(x: Array, axes: tuple[int, ...], scale: Array, bias: Array, epsilon: float) -> Array:
    deviation = x - x.mean(axes, keepdims=True)
    return deviation / np.sqrt((deviation**2).mean(axes, keepdims=True) + epsilon) * scale + bias


def rms_norm(x: Array, axes: tuple[int, ...], scale: Array, epsilon: float) -> Array:
    return x / np.sqrt((x**2).mean(axes, keepdims=True) + epsilon) * scale


def attention(facts: Attention, values: Values) -> Array:
    """softmax(scale * Q K^T, masked) V, in double, of the values a block was given."""
    q, k, v = (wide(values[each]) for each in (facts.query, facts.key, facts.value))
    if facts.key_layout == "heads_last":
        k = k.transpose(0, 2, 1, 3)
    elif facts.key_layout == "transposed":
        k = k.swapaxes(-1, -2)
    groups = facts.groups or 1
    if groups > 1:
        k, v = (np.repeat(each, groups, axis=1) if each.shape[1] < q.shape[1] else each for each in (k, v))
    assert facts.scale is not None
    scores = facts.scale * np.einsum("...qd,...kd->...qk", q, k)
    for mask in facts.masks:
        given = values[mask.value]
        match mask.meaning:
            case "added":
                scores = scores + wide(given)
            case "kept_where":
                scores = np.where(given, scores, -np.inf)
            case "masked_where":
                scores = np.where(given, -np.inf, scores)
    if facts.causal and not facts.masks:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = weights / weights.sum(-1, keepdims=True) @ v
    return result


def wide(array: np.ndarray) -> Array:
    """The array in double."""
    return array.astype(np.float64)
