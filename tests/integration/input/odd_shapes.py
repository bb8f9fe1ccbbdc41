"""Shapes that depend on data, nothing at all, scalars, many axes, long chains, wide graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.integration.input.odd_models import HEADER, OddModel, floats, made, odd, relu

WEIGHT = floats(4, 4, seed=7)


@odd
def selected() -> OddModel:
    """NonZero, Unique and Compress in the middle and as outputs."""

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        where = np.nonzero(h)
        rows = h[h.sum(axis=1) > 1]
        values, counts = np.unique(np.round(h), return_counts=True)
        return {
            "where": np.array(where),
            "picked": np.tanh(h[where]) * 2,
            "rows": rows @ WEIGHT,
            "values": values,
            "counts": counts,
            "total": rows.sum(axis=0),
        }

    return made(
        "selected",
        """selected (float[3,4] x) => (int64[2,n] where, float[n] picked, float[m,4] rows, float[k] values,
          int64[k] counts, float[4] total) <float one = {1}, int64[1] across = {1}, int64[1] down = {0}> {
          p = MatMul(x, w)
          h = Relu(p)
          where = NonZero(h)
          at = Transpose<perm = [1, 0]>(where)
          found = GatherND(h, at)
          t = Tanh(found)
          picked = Add(t, t)
          sums = ReduceSum<keepdims = 0>(h, across)
          large = Greater(sums, one)
          kept = Compress<axis = 0>(h, large)
          rows = MatMul(kept, w)
          total = ReduceSum<keepdims = 0>(kept, down)
          whole = Round(h)
          values, , , counts = Unique(whole)
        }""",
        oracle,
        {"x": floats(3, 4)},
        {"x": -np.abs(floats(3, 4)) @ np.linalg.inv(WEIGHT).astype(np.float32)},
        w=WEIGHT,
    )


@odd
def suppressed() -> OddModel:
    """NonMaxSuppression, TopK of as many as an input says, and a Range as long as another."""
    corners = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [3, 3, 5, 5], [6, 6, 7, 7]], np.float32)

    def oracle(x: Any, k: Any, end: Any) -> dict[str, Any]:
        scores = 1 / (1 + np.exp(-x))
        # the first two boxes overlap by more than half: only the better of them stays
        order = np.argsort(-scores, kind="stable")
        left = [i for i in order if not (i in (0, 1) and scores[1 - i] > scores[i])]
        left = [i for i in left if scores[i] > 0.3]
        top = np.argsort(-scores, kind="stable")[: int(k[0])]
        return {
            "kept": np.array([[0, 0, i] for i in left], np.int64).reshape(-1, 3),
            "boxes": corners[left].reshape(-1, 4) * 2,
            "best": np.log(scores[top]),
            "ranks": top,
            "steps": np.exp(-np.arange(0, end, 0.5, dtype=np.float32)),
        }

    return made(
        "suppressed",
        """suppressed (float[4] x, int64[1] k, float end) => (int64[n,3] kept, float[n,4] boxes, float[m] best,
          int64[m] ranks, float[r] steps)
        <int64[2] front = {0, 1}, int64[1] nought = {0}, int64 third = {2}, int64[1] most = {4}, float[1] iou = {0.5},
          float[1] least = {0.3}, float zero = {0}, float half = {0.5}> {
          s = Sigmoid(x)
          scores = Unsqueeze(s, front)
          all = Unsqueeze(corners, nought)
          kept = NonMaxSuppression(all, scores, most, iou, least)
          which = Gather<axis = 1>(kept, third)
          chosen = Gather<axis = 0>(corners, which)
          boxes = Add(chosen, chosen)
          top, ranks = TopK(s, k)
          best = Log(top)
          range = Range(zero, end, half)
          minus = Neg(range)
          steps = Exp(minus)
        }""",
        oracle,
        {"x": np.array([0.5, 1, -0.2, -3], np.float32), "k": np.array([2]), "end": np.array(2.1, np.float32)},
        {"x": np.array([-1, -2, -3, -4], np.float32), "k": np.array([4]), "end": np.array(0, np.float32)},
        corners=corners,
    )


@odd
def nothing() -> OddModel:
    """Tensors without an element: a batch of none, a product over none, parts and slices of none."""

    def oracle(x: Any, y: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        return {
            "none": np.tanh(h),
            "sums": np.zeros((4,), np.float32),
            "product": np.zeros((2, 3), np.float32) + y,
            "joined": np.concatenate([y, y[:, 3:]], axis=1),
            "empty": np.exp(y[:, 3:]),
            "largest": np.array(0, np.int64),
        }

    return made(
        "nothing",
        """nothing (float[0,4] x, float[2,3] y) => (float[0,4] none, float[4] sums, float[2,3] product,
          float[2,3] joined, float[2,0] empty, int64 largest)
        <int64[1] rows = {0}, int64[1] from = {3}, int64[1] to = {9}, int64[1] axis = {1}> {
          p = MatMul(x, w)
          h = Relu(p)
          none = Tanh(h)
          sums = ReduceSum<keepdims = 0>(h, rows)
          inner = Slice(y, from, to, axis)
          back = Transpose<perm = [1, 0]>(wide)
          m = MatMul(inner, back)
          product = Add(m, y)
          joined = Concat<axis = 1>(y, inner)
          empty = Exp(inner)
          largest = Size(none)
        }""",
        oracle,
        {"x": np.zeros((0, 4), np.float32), "y": floats(2, 3)},
        w=WEIGHT,
        wide=np.zeros((3, 0), np.float32),
    )


@odd
def scalars() -> OddModel:
    """Tensors without axes in, inside and out."""

    def oracle(x: Any, n: Any, flag: Any) -> dict[str, Any]:
        total = np.exp(x) * np.float32(n)
        row = total * np.array([1, 2, 3], np.float32)
        return {"y": np.asarray(row.sum(), np.float32), "m": np.asarray(n + 1), "not_flag": ~flag, "row": np.tanh(row)}

    return made(
        "scalars",
        """scalars (float x, int64 n, bool flag) => (float y, int64 m, bool not_flag, float[3] row)
        <float[3] w = {1, 2, 3}, int64 one = {1}> {
          e = Exp(x)
          f = Cast<to = 1>(n)
          t = Mul(e, f)
          r = Mul(t, w)
          y = ReduceSum<keepdims = 0>(r)
          row = Tanh(r)
          m = Add(n, one)
          not_flag = Not(flag)
        }""",
        oracle,
        {"x": np.array(0.3, np.float32), "n": np.array(2), "flag": np.array(True)},
        {"x": np.array(-1, np.float32), "n": np.array(-7), "flag": np.array(False)},
    )


@odd
def eight_axes() -> OddModel:
    """Tensors of rank eight."""
    order = [7, 6, 5, 4, 3, 2, 1, 0]

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x) + x.transpose(order).reshape(x.shape)
        return {"y": np.tanh(h), "sums": h.sum(axis=(1, 3, 5, 7))}

    return made(
        "eight_axes",
        """eight (float[2,1,3,1,2,2,1,2] x) => (float[2,1,3,1,2,2,1,2] y, float[2,3,2,1] sums)
        <int64[8] shape = {2, 1, 3, 1, 2, 2, 1, 2}, int64[4] odd = {1, 3, 5, 7}> {
          r = Relu(x)
          t = Transpose<perm = [7, 6, 5, 4, 3, 2, 1, 0]>(x)
          b = Reshape(t, shape)
          h = Add(r, b)
          y = Tanh(h)
          sums = ReduceSum<keepdims = 0>(h, odd)
        }""",
        oracle,
        {"x": floats(2, 1, 3, 1, 2, 2, 1, 2)},
    )


def chain(length: int) -> OddModel:
    """Nodes one after another, no two of them the same work."""
    steps = floats(length // 2, 4, seed=3) * np.float32(0.1)

    def oracle(x: Any) -> dict[str, Any]:
        for step in steps:
            x = relu(x + step)
        return {"y": x}

    nodes = []
    for index in range(length // 2):
        before = "x" if index == 0 else f"h{index - 1}"
        nodes.append(helper.make_node("Add", [before, f"s{index}"], [f"a{index}"]))
        nodes.append(helper.make_node("Relu", [f"a{index}"], ["y" if index == len(steps) - 1 else f"h{index}"]))
    proto = made("chain", "chain (float[4] x) => (float[4] y) {}", oracle).proto
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(numpy_helper.from_array(step, f"s{index}") for index, step in enumerate(steps))
    return OddModel(name="chain", proto=proto, feeds=({"x": floats(4)},), oracle=oracle)


def fan(width: int) -> OddModel:
    """Branches beside each other, all read by one node."""
    factors = floats(width, seed=4)

    def oracle(x: Any) -> dict[str, Any]:
        return {"y": np.tanh(np.concatenate([relu(x * factor) for factor in factors]))}

    proto = made("fan", f"fan (float[2] x) => (float[{2 * width}] y) {{}}", oracle, header=HEADER).proto
    for index, factor in enumerate(factors):
        proto.graph.initializer.append(helper.make_tensor(f"f{index}", TensorProto.FLOAT, [], [float(factor)]))
        proto.graph.node.append(helper.make_node("Mul", ["x", f"f{index}"], [f"m{index}"]))
        proto.graph.node.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"]))
    proto.graph.node.append(helper.make_node("Concat", [f"r{i}" for i in range(width)], ["c"], axis=0))
    proto.graph.node.append(helper.make_node("Tanh", ["c"], ["y"]))
    return OddModel(name="fan", proto=proto, feeds=({"x": floats(2)},), oracle=oracle)
