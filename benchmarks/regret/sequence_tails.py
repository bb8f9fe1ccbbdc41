"""Tails over time or tokens: recurrent networks, attention, decoding, look-ups; and what clips end in."""

from __future__ import annotations

import functools
import random

import numpy as np

from benchmarks.models.graph import GraphWriter
from benchmarks.regret.feature import Feature, Tail

Outputs = tuple[str, ...]


def _time_first(g: GraphWriter, x: Feature) -> tuple[str, int, int]:
    """Append what puts time first and joins all other axes; return the tensor, its steps and its features."""
    if x.kind == "tokens":
        _, steps, features = x.shape
        return g.op("Transpose", x.tensor, perm=[1, 0, 2]), steps, features
    _, channels, steps, height, width = x.shape
    features = channels * height * width
    y = g.op("Transpose", x.tensor, perm=[2, 0, 1, 3, 4])
    return g.op("Reshape", y, g.ints(steps, 1, features)), steps, features


def recurrent(op: str, g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a recurrent layer and the most likely symbol of each step."""
    y, steps, features = _time_first(g, x)
    direction, hidden = draw.choice(["forward", "bidirectional"]), draw.choice([64, 128, 192])
    ways, gates = (2 if direction == "bidirectional" else 1), (3 if op == "GRU" else 4)
    weights = [
        g.weight(f"{op.lower()}_input", ways, gates * hidden, features),
        g.weight(f"{op.lower()}_recurrent", ways, gates * hidden, hidden),
        g.weight(f"{op.lower()}_bias", ways, 2 * gates * hidden),
    ]
    more = {"linear_before_reset": draw.choice([0, 1])} if op == "GRU" else {}
    outputs = g.ops(op, gates - 1, y, *weights, hidden_size=hidden, direction=direction, **more)
    y = g.op("Transpose", outputs[0], perm=[2, 0, 1, 3])
    y = g.op("Reshape", y, g.ints(1, steps, ways * hidden))
    logits = g.op("MatMul", y, g.weight("matmul_weight", ways * hidden, draw.choice([29, 500])))
    return (g.op("ArgMax", logits, axis=2, keepdims=0),)


def attention(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append attention of several heads, its products written as Einsum; keys are values."""
    _, steps, width = x.shape
    heads = draw.choice([4, 8])
    query, key = (
        g.op(
            "Reshape",
            g.op("MatMul", x.tensor, g.weight("matmul_weight", width, width)),
            g.ints(1, steps, heads, width // heads),
        )
        for _ in range(2)
    )
    scores = g.op("Einsum", query, key, equation="bthd,bshd->bhts")
    scale = g.constant(np.array((width // heads) ** -0.5, dtype=np.float32), "scale")
    shares = g.op("Softmax", g.op("Mul", scores, scale), axis=-1)
    return (g.op("Einsum", shares, key, equation="bhts,bshd->bthd"),)


def nucleus(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append what nucleus sampling asks of a language model: how many of the best symbols make nine tenths."""
    vocabulary = draw.choice([500, 2000])
    shares = g.op("Softmax", g.op("MatMul", x.tensor, g.weight("matmul_weight", x.channels, vocabulary)), axis=-1)
    best, symbols = g.ops("TopK", 2, shares, g.ints(40), axis=-1)
    total = g.op("CumSum", best, g.constant(np.array(2, dtype=np.int64), "axis"))
    return total, symbols


def durations(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a monotonic alignment: running sums over time, per channel."""
    steps = g.op("Sigmoid", g.linear(x.tensor, x.channels, draw.choice([64, 256])))
    ends = g.op("CumSum", steps, g.constant(np.array(1, dtype=np.int64), "axis"))
    return (g.op("Mul", ends, g.constant(np.array(1 / x.shape[1], dtype=np.float32), "per_step")),)


def pointer(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a pointer-generator's output (1704.04368): shares of the source added to those of the vocabulary."""
    _, steps, width = x.shape
    vocabulary = draw.choice([1000, 4000])
    shares = g.op("Softmax", g.op("MatMul", x.tensor, g.weight("matmul_weight", width, vocabulary)), axis=-1)
    source = g.op("Softmax", g.op("MatMul", x.tensor, g.op("Transpose", x.tensor, perm=[0, 2, 1])), axis=-1)
    places = np.random.default_rng(steps).integers(0, vocabulary, steps)
    ids = g.constant(np.ascontiguousarray(np.broadcast_to(places, (1, steps, steps)).astype(np.int64)), "source_ids")
    return (g.op("ScatterElements", shares, ids, source, axis=2, reduction="add"),)


def quantised(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append vector quantisation (1711.00937): the nearest entry of a codebook, looked up."""
    entries = draw.choice([512, 2048])
    near = g.op("MatMul", x.tensor, g.weight("matmul_weight", x.channels, entries))
    near = g.op("Sub", near, g.weight("half_norms", entries))
    codes = g.op("ArgMax", near, axis=2, keepdims=0)
    found = g.op("Gather", g.weight("codebook", entries, x.channels), codes, axis=0)
    return codes, g.op("Add", found, x.tensor)


def pruned(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append token pruning: the best tokens are chosen, gathered and read by a last layer."""
    _, steps, width = x.shape
    scores = g.op("Reshape", g.op("MatMul", x.tensor, g.weight("matmul_weight", width, 1)), g.ints(steps))
    _, places = g.ops("TopK", 2, scores, g.ints(steps // 4), axis=0)
    kept = g.op("Gather", x.tensor, places, axis=1)
    logits = g.op("MatMul", kept, g.weight("matmul_weight", width, draw.choice([100, 1000])))
    return (g.op("Softmax", logits, axis=-1),)


def memory(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a write of keys into a cache at given slots, and a read of all of it."""
    _, steps, width = x.shape
    slots = steps * draw.choice([2, 4])
    key = g.op("Squeeze", g.op("MatMul", x.tensor, g.weight("matmul_weight", width, width)), g.ints(0))
    places = np.random.default_rng(slots).permutation(slots)[:steps, None].astype(np.int64)
    cache = g.constant(np.random.default_rng(steps).standard_normal((slots, width), dtype=np.float32), "cache")
    held = g.op("ScatterND", cache, g.constant(places, "slots"), key)
    scores = g.op("MatMul", x.tensor, g.op("Transpose", held, perm=[1, 0]))
    scale = g.constant(np.array(1 / width, dtype=np.float32), "scale")
    return (g.op("Softmax", g.op("Mul", scores, scale), axis=-1),)


def actions(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append the classifier of a clip, with a 3-D convolution before it."""
    y = g.op("Relu", g.conv(x.tensor, draw.choice([32, 64]), (3, 3, 3), dilation=draw.choice([1, 2])))
    y = g.op("ReduceMean", y, axes=[2, 3, 4], keepdims=0)
    labels = g.op("Gemm", y, g.weight("gemm_weight", 400, g.channels(y)), g.weight("gemm_bias", 400), transB=1)
    best, places = g.ops("TopK", 2, labels, g.ints(5), axis=1)
    return places, g.op("Softmax", best, axis=1)


TAILS = (
    Tail(name="gru", takes=("tokens", "clip"), operators=5, build=functools.partial(recurrent, "GRU")),
    Tail(name="lstm", takes=("tokens", "clip"), operators=5, build=functools.partial(recurrent, "LSTM")),
    Tail(name="einsum-attention", takes=("tokens",), operators=6, build=attention),
    Tail(name="nucleus-cumsum", takes=("tokens",), operators=4, build=nucleus),
    Tail(name="cumsum", takes=("tokens",), operators=5, build=durations),
    Tail(name="scatter-add", takes=("tokens",), operators=6, build=pointer),
    Tail(name="codebook-lookup", takes=("tokens",), operators=5, build=quantised),
    Tail(name="token-topk", takes=("tokens",), operators=5, build=pruned),
    Tail(name="scatter-cache", takes=("tokens",), operators=6, build=memory),
    Tail(name="conv3d-topk", takes=("clip",), operators=6, build=actions),
)
