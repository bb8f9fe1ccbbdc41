"""Kernel functions that every toolchain for whole groups of operators on the CPU is tried with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from collage_testing.kit.written import WrittenFunction, written

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorCase:
    """A function, and what it is run on.

    Attributes:
        text: The graph, as `written` takes it.
        constants: Its weights.
        bounds: Largest shapes of values whose extents are known only when it runs.
        feeds: Inputs of each run; one kernel runs them one after the other.
    """

    text: str
    constants: Mapping[str, Array]
    bounds: Mapping[str, tuple[int, ...]]
    feeds: Sequence[Mapping[str, Any]]

    def function(self) -> WrittenFunction:
        """Make the function anew."""
        return written(self.text, self.constants, bounds=self.bounds)


def operator_cases() -> dict[str, OperatorCase]:
    """Return single operators, groups, and values of open shapes, by name."""
    cases = {
        name: OperatorCase(text=text, constants=constants, bounds={}, feeds=[feeds])
        for name, (text, feeds, constants) in _CASES.items()
    }
    return {**cases, **_OPEN}


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    """Draw numbers that are the same for the same shape."""
    found: Array = np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(dtype)
    return found


def ints(*values: int) -> Array:
    """Return integers as ONNX has extents and indices."""
    return np.array(values, np.int64)


IMAGE = {"x": normal(1, 4, 9, 9)}
MATRIX = {"x": normal(3, 8)}

_CASES: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Array]]] = {
    "relu": ("g (float[3,8] x) => (float[3,8] y) { y = Relu(x) }", MATRIX, {}),
    "scalar": ("g (float x) => (float y) { y = Neg(x) }", {"x": np.array(3, np.float32)}, {}),
    "empty": ("g (float[0,8] x) => (float[0,8] y) { y = Neg(x) }", {"x": np.zeros((0, 8), np.float32)}, {}),
    "empty beside full": (
        "g (float[0,8] a, float[3,8] x) => (float[3,8] y) { y = Concat<axis=0>(a, x) }",
        {"a": np.zeros((0, 8), np.float32)} | MATRIX,
        {},
    ),
    "gelu": ("g (float[3,8] x) => (float[3,8] y) { y = Gelu(x) }", MATRIX, {}),
    "add, broadcast": (
        "g (float[3,8] x, float[8] b) => (float[3,8] y) { y = Add(x, b) }",
        MATRIX | {"b": normal(8)},
        {},
    ),
    "matmul": ("g (float[3,8] x) => (float[3,5] y) { y = MatMul(x, w) }", MATRIX, {"w": normal(8, 5)}),
    "gemm": (
        "g (float[3,8] x) => (float[3,40] y) { y = Gemm<transB=1>(x, w, b) }",
        MATRIX,
        {"w": normal(40, 8), "b": normal(40)},
    ),
    "softmax": ("g (float[3,8] x) => (float[3,8] y) { y = Softmax<axis=-1>(x) }", MATRIX, {}),
    "layer normalization": (
        "g (float[3,8] x) => (float[3,8] y) { y = LayerNormalization<axis=-1>(x, s, b) }",
        MATRIX,
        {"s": normal(8), "b": normal(8)},
    ),
    "conv": (
        "g (float[1,4,9,9] x) => (float[1,16,9,9] y) { y = Conv<pads=[1,1,1,1]>(x, w, b) }",
        IMAGE,
        {"w": normal(16, 4, 3, 3), "b": normal(16)},
    ),
    "depthwise conv": (
        "g (float[1,4,9,9] x) => (float[1,4,5,5] y) { y = Conv<pads=[1,1,1,1],strides=[2,2],group=4>(x, w) }",
        IMAGE,
        {"w": normal(4, 1, 3, 3)},
    ),
    "max pool": (
        "g (float[1,4,9,9] x) => (float[1,4,4,4] y) { y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) }",
        IMAGE,
        {},
    ),
    "average pool": (
        "g (float[1,4,9,9] x) => (float[1,4,9,9] y) { y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x) }",
        IMAGE,
        {},
    ),
    "resize": (
        'g (float[1,4,9,9] x) => (float[1,4,18,18] y) { y = Resize<mode="linear">(x, , s) }',
        IMAGE,
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "transpose": ("g (float[1,4,9,9] x) => (float[1,9,9,4] y) { y = Transpose<perm=[0,2,3,1]>(x) }", IMAGE, {}),
    "reduce mean": (
        "g (float[1,4,9,9] x) => (float[1,1,9,9] y) { y = ReduceMean(x, a) }",
        IMAGE,
        {"a": ints(1)},
    ),
    "arg max, first of equals": (
        "g (float[1,4] x) => (int64[1,1] y) { y = ArgMax<axis=1>(x) }",
        {"x": np.array([[1, 3, 3, 2]], np.float32)},
        {},
    ),
    "top k": (
        "g (float[3,8] x) => (float[3,2] v, int64[3,2] i) { v, i = TopK(x, k) }",
        MATRIX,
        {"k": ints(2)},
    ),
    "gather": (
        "g (int64[2,2] i) => (float[2,2,6] y) { y = Gather(t, i) }",
        {"i": ints(0, 9, 3, 3).reshape(2, 2)},
        {"t": normal(50, 6)},
    ),
    "cast to integers": (
        "g (float[3,8] x) => (int32[3,8] y, int64[3,8] z, bool[3,8] b) "
        "{ y = Cast<to=6>(x) z = Cast<to=7>(x) b = Cast<to=9>(x) }",
        MATRIX,
        {},
    ),
    "not": ("g (bool[4] x) => (bool[4] y) { y = Not(x) }", {"x": np.array([True, False, False, True])}, {}),
    "integer division": (
        "g (int64[3] x, int64[3] y) => (int64[3] z) { z = Div(x, y) }",
        {"x": ints(7, 8, 9), "y": ints(2, 3, 4)},
        {},
    ),
    "where": (
        "g (bool[3,8] c, float[3,8] x) => (float[3,8] y) { n = Neg(x) y = Where(c, x, n) }",
        MATRIX | {"c": normal(3, 8) > 0},
        {},
    ),
    "float16": ("g (float16[3,8] x) => (float16[3,8] y) { y = Exp(x) }", {"x": normal(3, 8, dtype=np.float16)}, {}),
    "cumulative sum": ("g (float[3,8] x) => (float[3,8] y) { y = CumSum(x, a) }", MATRIX, {"a": np.array(1, np.int64)}),
    "einsum": (
        'g (float[3,8] x, float[8,5] y) => (float[3,5] z) { z = Einsum<equation="ij,jk->ik">(x, y) }',
        MATRIX | {"y": normal(8, 5)},
        {},
    ),
    "depth to space": (
        "g (float[1,4,9,9] x) => (float[1,1,18,18] y) { y = DepthToSpace<blocksize=2>(x) }",
        IMAGE,
        {},
    ),
    "conv, relu, add": (
        "g (float[1,16,9,9] x) => (float[1,16,9,9] y) { a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) y = Add(b, x) }",
        {"x": normal(1, 16, 9, 9)},
        {"w": normal(16, 16, 3, 3) * 0.1},
    ),
    "two outputs of one chain": (
        "g (float[3,8] x) => (float[3,8] a, float[3,8] b) { a = Relu(x) b = Exp(a) }",
        MATRIX,
        {},
    ),
    "an output that is an input": (
        "g (float[3,8] x) => (float[3,8] y, float[3,8] z) { y = Identity(x) z = Neg(x) }",
        MATRIX,
        {},
    ),
    "an output that is a constant": (
        "g (float[3,8] x) => (float[20,20] c, float[3,8] z) { c = Identity(w) z = Neg(x) }",
        MATRIX,
        {"w": normal(20, 20)},
    ),
    "an output that folds to a constant": (
        "g (float[3,8] x) => (float[20,20] c, float[3,8] z) { c = Transpose<perm=[1,0]>(w) z = Neg(x) }",
        MATRIX,
        {"w": normal(20, 20)},
    ),
    "only a view": (
        "g (float[3,8] x) => (float[24] y) { y = Reshape(x, s) }",
        MATRIX,
        {"s": ints(24)},
    ),
    "an input nobody reads": (
        "g (float[2] u, float[3,8] x) => (float[3,8] y) { y = Neg(x) }",
        {"u": normal(2)} | MATRIX,
        {},
    ),
    "equal outputs": (
        "g (float[3,8] x) => (float[3,8] a, float[3,8] b) { a = Neg(x) b = Neg(x) }",
        MATRIX,
        {},
    ),
    "a weight used twice": (
        "g (float[8,20] x) => (float[8,20] y) { a = MatMul(x, w) t = Transpose<perm=[1,0]>(w) y = MatMul(a, t) }",
        {"x": normal(8, 20)},
        {"w": normal(20, 20)},
    ),
    "if": (
        "g (bool c, float[3,8] x) => (float[3,8] y) { y = If(c) "
        "<then_branch = t () => (float[3,8] a) { a = Add(x, x) }, "
        "else_branch = e () => (float[3,8] b) { b = Neg(x) }> }",
        MATRIX | {"c": np.array(True)},
        {},
    ),
    "a weight captured by a branch, and one made inside it": (
        "g (bool c, float[20,20] x) => (float[20,20] y) { y = If(c) "
        "<then_branch = t () => (float[20,20] a) { d = MatMul(x, w) k = ConstantOfShape<value = float[1] {2}>(s) "
        "a = Add(d, k) }, else_branch = e () => (float[20,20] b) { b = MatMul(w, x) }> }",
        {"x": normal(20, 20), "c": np.array(True)},
        {"w": normal(20, 20), "s": ints(20, 20)},
    ),
    "a small classifier": (
        "g (float[1,4,9,9] x) => (float[1,10] y) { a = Conv<pads=[1,1,1,1]>(x, w0, b0) b = Relu(a) "
        "c = MaxPool<kernel_shape=[3,3],strides=[2,2]>(b) d = Conv<pads=[1,1,1,1]>(c, w1) e = Relu(d) "
        "f = GlobalAveragePool(e) h = Flatten(f) y = Gemm(h, w2, b2) }",
        IMAGE,
        {
            "w0": normal(32, 4, 3, 3) * 0.2,
            "b0": normal(32),
            "w1": normal(32, 32, 3, 3) * 0.1,
            "w2": normal(32, 10),
            "b2": normal(10),
        },
    ),
    "a transformer block": (
        "g (float[1,6,32] x) => (float[1,6,32] y) { n = LayerNormalization<axis=-1>(x, g, b) "
        "q0 = MatMul(n, wq) k0 = MatMul(n, wk) v0 = MatMul(n, wv) "
        "q1 = Reshape(q0, heads) k1 = Reshape(k0, heads) v1 = Reshape(v0, heads) "
        "q = Transpose<perm=[0,2,1,3]>(q1) k = Transpose<perm=[0,2,3,1]>(k1) v = Transpose<perm=[0,2,1,3]>(v1) "
        "s0 = MatMul(q, k) s1 = Mul(s0, scale) p = Softmax<axis=-1>(s1) o0 = MatMul(p, v) "
        "o1 = Transpose<perm=[0,2,1,3]>(o0) o2 = Reshape(o1, flat) o3 = MatMul(o2, wo) r = Add(o3, x) "
        "m = LayerNormalization<axis=-1>(r, g, b) u = MatMul(m, w1) e = Gelu(u) d = MatMul(e, w2) y = Add(d, r) }",
        {"x": normal(1, 6, 32)},
        {
            "g": np.ones(32, np.float32),
            "b": np.zeros(32, np.float32),
            "heads": ints(1, 6, 4, 8),
            "flat": ints(1, 6, 32),
            "scale": np.array(8**-0.5, np.float32),
            "wq": normal(32, 32) * 0.2,
            "wk": normal(32, 32).T.copy() * 0.2,
            "wv": normal(32, 32)[::-1].copy() * 0.2,
            "wo": normal(32, 32)[:, ::-1].copy() * 0.2,
            "w1": normal(32, 128) * 0.2,
            "w2": normal(128, 32) * 0.1,
        },
    ),
}

_BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 20, 1, 21]]], np.float32)
_SCORES = np.array([[[0.9, 0.75, 0.6, 0.95]]], np.float32)

_OPEN = {
    "bounded outputs of their true shape": OperatorCase(
        text="g (float[1,4,4] b, float[1,1,4] s) => (int64[n,3] y, float[1,1,4] z) "
        "{ y = NonMaxSuppression(b, s, m, t) z = Neg(s) }",
        constants={"m": ints(4), "t": np.array([0.5], np.float32)},
        bounds={"y": (4, 3)},
        feeds=[{"b": _BOXES, "s": _SCORES}],
    ),
    "a bounded shape that changes from call to call": OperatorCase(
        text="g (float[4] x) => (int64[1,n] y, float[4] z) { y = NonZero(x) z = Neg(x) }",
        constants={},
        bounds={"y": (1, 4)},
        feeds=[{"x": np.array([1.0] * count + [0.0] * (4 - count), np.float32)} for count in (0, 4, 1, 3)],
    ),
    "a bounded input, read at its current shape": OperatorCase(
        text="g (int64[1,n] i, float[4] x) => (float[4] y, float[1,n] p) { y = Neg(x) p = Gather(x, i) }",
        constants={},
        bounds={"i": (1, 4), "p": (1, 4)},
        feeds=[{"i": ints(3, 0).reshape(1, 2), "x": normal(4)}],
    ),
    "a tensor of unknown shape, passed by value": OperatorCase(
        text="g (float[n,8] x) => (float[n,8] y) { y = Relu(x) }", constants={}, bounds={}, feeds=[MATRIX]
    ),
    "bfloat16 in and out": OperatorCase(
        text="g (float[3,8] x, bfloat16[4] h) => (bfloat16[3,8] y, float[4] z) "
        "{ y = Cast<to=16>(x) z = Cast<to=1>(h) }",
        constants={},
        bounds={},
        feeds=[MATRIX | {"h": normal(4).astype(ml_dtypes.bfloat16)}],
    ),
}
