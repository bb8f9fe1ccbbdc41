"""Small models, each with something that a plan has to get right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx.reference import ReferenceEvaluator

from collage_core.ir.io.model_io import save_model
from collage_testing.graphs import GraphBuilder

Arrays = dict[str, np.ndarray[Any, Any]]


def cnn() -> onnx_ir.Model:
    """Two convolutions with a skip, pooled and classified: `conv_0 relu_0 conv_1 relu_1 add_0 ... softmax_0`."""
    g = GraphBuilder("cnn")
    x = g.input("x", 1, 3, 16, 16)
    first = g.op("Relu", g.op("Conv", x, g.weight("w0", 8, 3, 3, 3), g.weight("b0", 8), pads=[1, 1, 1, 1]))
    second = g.op("Relu", g.op("Conv", first, g.weight("w1", 8, 8, 3, 3), g.weight("b1", 8), pads=[1, 1, 1, 1]))
    pooled = g.op("Flatten", g.op("GlobalAveragePool", g.op("Add", first, second)))
    return g.model(g.op("Softmax", g.op("Gemm", pooled, g.weight("w2", 8, 10), g.weight("b2", 10))))


def transformer() -> onnx_ir.Model:
    """One encoder block of two heads over token ids."""
    g = GraphBuilder("transformer")
    tokens, hidden, heads = 8, 16, 2
    ids = g.input("ids", 1, tokens, dtype=onnx_ir.DataType.INT64)
    x = g.op("Gather", g.weight("embedding", 32, hidden), ids)

    def norm(value: onnx_ir.Value, name: str) -> onnx_ir.Value:
        return g.op("LayerNormalization", value, g.weight(f"{name}_scale", hidden), g.weight(f"{name}_bias", hidden))

    def project(value: onnx_ir.Value, name: str, k: int, n: int) -> onnx_ir.Value:
        return g.op("Add", g.op("MatMul", value, g.weight(f"{name}_w", k, n)), g.weight(f"{name}_b", n))

    def split(value: onnx_ir.Value, perm: list[int]) -> onnx_ir.Value:
        return g.op("Transpose", g.op("Reshape", value, g.ints(1, tokens, heads, hidden // heads)), perm=perm)

    y = norm(x, "before")
    query = split(project(y, "query", hidden, hidden), [0, 2, 1, 3])
    key = split(project(y, "key", hidden, hidden), [0, 2, 3, 1])
    value = split(project(y, "value", hidden, hidden), [0, 2, 1, 3])
    scores = g.op("Div", g.op("MatMul", query, key), g.constant("scale", np.float32(2.8284271)))
    mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores), value), perm=[0, 2, 1, 3])
    attended = g.op("Add", x, project(g.op("Reshape", mixed, g.ints(1, tokens, hidden)), "out", hidden, hidden))
    inner = g.op("Gelu", project(norm(attended, "after"), "up", hidden, 32))
    return g.model(g.op("Add", attended, project(inner, "down", 32, hidden)))


def detector() -> onnx_ir.Model:
    """Boxes and scores of 16 places; what NonMaxSuppression keeps of them is bounded, not known."""
    g = GraphBuilder("detector")
    features = g.op("Relu", g.op("Conv", g.input("x", 1, 3, 4, 4), g.weight("w0", 8, 3, 1, 1), g.weight("b0", 8)))
    corners = g.op("Conv", features, g.weight("w1", 4, 8, 1, 1), g.weight("b1", 4))
    boxes = g.op("Reshape", g.op("Transpose", corners, perm=[0, 2, 3, 1]), g.ints(1, 16, 4))
    scores = g.op("Sigmoid", g.op("Reshape", g.op("Conv", features, g.weight("w2", 2, 8, 1, 1)), g.ints(1, 2, 16)))
    kept = g.op(
        "NonMaxSuppression",
        boxes,
        scores,
        g.ints(4),
        g.constant("overlap", np.array([0.5], np.float32)),
        g.constant("least", np.array([0.3], np.float32)),
    )
    return g.model(kept, scores)


def refused() -> onnx_ir.Model:
    """A pooling kernel that exceeds its input, with ceil_mode: OpenVINO refuses the node `pool`."""
    g = GraphBuilder("refused")
    x = g.op("Relu", g.op("Conv", g.input("x", 1, 3, 7, 7), g.weight("w0", 8, 3, 3, 3), pads=[1, 1, 1, 1]))
    x = g.op("Relu", g.op("Conv", x, g.weight("w1", 8, 8, 3, 3), g.weight("b1", 8), pads=[1, 1, 1, 1]))
    x = g.op("AveragePool", x, name="pool", kernel_shape=[8, 8], strides=[8, 8], ceil_mode=1)
    x = g.op("Gemm", g.op("Flatten", x), g.weight("w2", 8, 16), g.weight("b2", 16))
    return g.model(g.op("Add", g.op("Tanh", x), g.op("Relu", x)))


def conditional() -> onnx_ir.Model:
    """An If whose branches read a value of the graph around it."""
    return parsed(
        """g (float[4,8] x) => (float[4,8] y) <float zero = {0.0}> {
            a = Mul(x, x)
            b = Sub(a, x)
            sum = ReduceSum<keepdims=0>(x)
            positive = Greater(sum, zero)
            c = If(positive) <
                then_branch = t () => (float[4,8] t1) { t0 = Exp(b) t1 = Add(t0, x) },
                else_branch = e () => (float[4,8] e1) { e0 = Neg(b) e1 = Relu(e0) }
            >
            d = Tanh(c)
            y = Add(d, a)
        }"""
    )


def sequence() -> onnx_ir.Model:
    """A tensor that is split into a sequence and put together again: OpenVINO has no sequences."""
    return parsed(
        """g (float[4,8] x) => (float[4,8] y) <int64 two = {2}, int64 one = {1}> {
            a = Tanh(x)
            halves = SplitToSequence<axis=0>(a, two)
            last = SequenceAt(halves, one)
            whole = ConcatFromSequence<axis=0>(halves)
            b = Exp(whole)
            c = Concat<axis=0>(last, last)
            y = Add(b, c)
        }"""
    )


def strings() -> onnx_ir.Model:
    """Words made from numbers and compared: OpenVINO holds no strings."""
    return parsed(
        """g (int64[8] ids, float[8] x) => (float[8] y) <string[1] prefix = {"id-"}, string[1] wanted = {"id-1"}> {
            words = Cast<to=8>(ids)
            named = StringConcat(prefix, words)
            same = Equal(named, wanted)
            a = Exp(x)
            b = Neg(a)
            c = Where(same, a, b)
            y = Tanh(c)
        }"""
    )


def odd() -> onnx_ir.Model:
    """A branch, a sequence, strings and an output of unknown length, one feeding the other."""
    return parsed(
        """g (float[4,8] x, int64[8] ids) => (int64[kept,3] kept, float[4,8] y)
        <float zero = {0.0}, int64 two = {2}, int64 one = {1}, int64[1] four = {4}, int64[3] as_boxes = {1, 8, 4},
         int64[3] as_scores = {1, 4, 8}, float[1] overlap = {0.5}, float[1] least = {0.3},
         string[1] prefix = {"id-"}, string[1] wanted = {"id-1"}>
        {
            a = Mul(x, x)
            b = Sub(a, x)
            sum = ReduceSum<keepdims=0>(x)
            positive = Greater(sum, zero)
            c = If(positive) <
                then_branch = t () => (float[4,8] t1) { t0 = Exp(b) t1 = Add(t0, x) },
                else_branch = e () => (float[4,8] e1) { e0 = Neg(b) e1 = Relu(e0) }
            >
            d = Tanh(c)
            halves = SplitToSequence<axis=0>(d, two)
            last = SequenceAt(halves, one)
            whole = ConcatFromSequence<axis=0>(halves)
            twice = Concat<axis=0>(last, last)
            words = Cast<to=8>(ids)
            named = StringConcat(prefix, words)
            same = Equal(named, wanted)
            mixed = Where(same, whole, twice)
            boxes = Reshape(mixed, as_boxes)
            flat = Reshape(whole, as_scores)
            scores = Sigmoid(flat)
            kept = NonMaxSuppression(boxes, scores, four, overlap, least)
            y = Exp(mixed)
        }"""
    )


def parsed(graph: str) -> onnx_ir.Model:
    """A model from the text of a graph."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    model: onnx_ir.Model = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
    return model


MODELS: dict[str, Callable[[], onnx_ir.Model]] = {
    make.__name__: make for make in (cnn, transformer, detector, refused, conditional, sequence, strings, odd)
}


def written(name: str, folder: Path) -> Path:
    """The file of a model."""
    path = folder / f"{name}.onnx"
    save_model(MODELS[name](), path)
    return path


def inputs(model: Path, seed: int = 5) -> Arrays:
    """Random inputs of a model: small indices and normal numbers."""
    random = np.random.default_rng(seed)
    made: Arrays = {}
    for value in onnx.load(model).graph.input:
        kind = value.type.tensor_type
        shape = [extent.dim_value for extent in kind.shape.dim]
        is_integer = kind.elem_type == onnx.TensorProto.INT64
        made[value.name] = random.integers(0, 3, shape) if is_integer else random.standard_normal(shape, np.float32)
    return made


def reference(model: Path, feeds: Arrays) -> Arrays:
    """Outputs of ONNX's own evaluator, on the model as it was written."""
    evaluator = ReferenceEvaluator(str(model))
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))
