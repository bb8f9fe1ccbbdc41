"""Random models for property tests: small, valid, and with every structure that makes partitioning hard."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir

from collage_testing.graphs import OPSET, GraphBuilder

SIDE = 4
"""Rows and columns of every float tensor that a later operator may read."""


def random_model(rng: random.Random | int, operators: int = 7) -> onnx_ir.Model:
    """Generate a random model of inputs `x` and `z`, whose outputs are up to three of its values.

    It may contain chains, branches, several outputs of a node, used or unused, views, captured values, omitted
    inputs.

    Args:
        rng: Random generator, or a seed.
        operators: Number of operators drawn. Some make several nodes, and some are not needed by any output.
    """
    return _Growth(rng if isinstance(rng, random.Random) else random.Random(rng)).model(operators)


class _Growth:
    """Grows a graph by operators drawn at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._g = g = GraphBuilder("random", seed=rng.randrange(1 << 30))
        self._values = [g.input("x", SIDE, SIDE), g.input("z", SIDE, SIDE)]
        self._weights = [g.weight("w0", SIDE, SIDE), g.weight("w1", SIDE, SIDE)]
        self._row = g.weight("row", SIDE)
        self._one = g.constant("one", np.float32(1))
        self._all = g.constant("all", np.array([SIDE], np.int64))
        self._flat = g.constant("flat", np.array([SIDE * SIDE], np.int64))
        self._square = g.constant("square", np.array([SIDE, SIDE], np.int64))

    def model(self, operators: int) -> onnx_ir.Model:
        kinds = sorted(_KINDS)
        for _ in range(operators):
            self._values.append(_KINDS[self._rng.choice(kinds)](self))
        made = self._values[2:]
        outputs = {self._values[-1], *self._rng.sample(made, k=min(2, len(made)))}
        return self._g.model(*(value for value in self._values if value in outputs))

    def _value(self) -> onnx_ir.Value:
        """Draw a value, preferring the latest ones so that chains occur."""
        return self._rng.choice(self._values[-4:] if self._rng.random() < 0.7 else self._values)

    def unary(self) -> onnx_ir.Value:
        return self._g.op(self._rng.choice(["Relu", "Tanh", "Neg"]), self._value())

    def binary(self) -> onnx_ir.Value:
        return self._g.op(self._rng.choice(["Add", "Sub", "Max"]), self._value(), self._value())

    def broadcast(self) -> onnx_ir.Value:
        return self._g.op("Mul", self._value(), self._row)

    def matmul(self) -> onnx_ir.Value:
        return self._g.op("MatMul", self._value(), self._rng.choice(self._weights))

    def split(self) -> onnx_ir.Value:
        upper, lower = self._g.ops("Split", 2, self._value(), axis=0, num_outputs=2)
        return self._g.op("Concat", lower, upper, axis=0)

    def views(self) -> onnx_ir.Value:
        flat = self._g.op("Reshape", self._value(), self._flat)
        between = self._g.op(self._rng.choice(["Exp", "Identity"]), flat)
        return self._g.op("Reshape", between, self._square)

    def clip(self) -> onnx_ir.Value:
        return self._g.op("Clip", self._value(), None, self._one)

    def norm(self) -> onnx_ir.Value:
        return self._g.op("Softmax", self._value(), axis=-1)

    def transpose(self) -> onnx_ir.Value:
        return self._g.op("Transpose", self._value(), perm=[1, 0])

    def unused_output(self) -> onnx_ir.Value:
        return self._g.ops("TopK", 2, self._value(), self._all, axis=1)[0]

    def branch(self) -> onnx_ir.Value:
        total = self._g.op("ReduceSum", self._value(), keepdims=0)
        condition = self._g.op("Less", total, self._one)
        weight = self._rng.choice(self._weights)
        yes = _body("yes", onnx_ir.node("Add", [self._value(), weight]))
        negated = onnx_ir.node("Neg", [self._value()])
        no = _body("no", negated, onnx_ir.node("Relu", negated.outputs))
        return self._g.op("If", condition, then_branch=yes, else_branch=no)


def _body(name: str, *nodes: onnx_ir.Node) -> onnx_ir.Graph:
    """Build a branch without inputs whose last node gives its output."""
    for number, node in enumerate(nodes):
        node.outputs[0].name = f"{name}_{number}"
    [output] = nodes[-1].outputs
    output.type, output.shape = onnx_ir.TensorType(onnx_ir.DataType.FLOAT), onnx_ir.Shape([SIDE, SIDE])
    return onnx_ir.Graph([], [output], nodes=nodes, name=name, opset_imports={"": OPSET})


_KINDS: Mapping[str, Callable[[_Growth], onnx_ir.Value]] = {
    "binary": _Growth.binary,
    "branch": _Growth.branch,
    "broadcast": _Growth.broadcast,
    "clip": _Growth.clip,
    "matmul": _Growth.matmul,
    "norm": _Growth.norm,
    "split": _Growth.split,
    "transpose": _Growth.transpose,
    "unary": _Growth.unary,
    "unused_output": _Growth.unused_output,
    "views": _Growth.views,
}
