"""Blocks written in a random one of the many ways there are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph

Shape = tuple[int, ...]


class Writer:
    """Writes the nodes of a graph, choosing between ways that compute the same.

    Args:
        seed: Decides which way is chosen.
        opset: Version of ai.onnx.
    """

    def __init__(self, seed: int, opset: int = 24) -> None:
        self.draw = random.Random(seed)
        self._opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def given(self, name: str, shape: Shape, dtype: int = onnx.TensorProto.FLOAT) -> str:
        """An input of the graph."""
        self._inputs.append(onnx.helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def op(self, op_type: str, *operands: str, **attributes: Any) -> str:
        """A node with one output."""
        output = f"v{len(self._nodes)}"
        self._nodes.append(
            onnx.helper.make_node(op_type, operands, [output], name=f"n{len(self._nodes)}", **attributes)
        )
        return output

    def either(self, op_type: str, left: str, right: str) -> str:
        """A node of a commutative operator."""
        return self.op(op_type, *self.draw.sample([left, right], 2))

    def times(self, value: str, factor: float, dtype: Any = np.float32) -> str:
        """Multiplied by a number, or divided by its reciprocal."""
        if self.draw.random() < 0.5:
            return self.op("Div", value, self.constant(1 / factor, dtype))
        return self.either("Mul", value, self.constant(factor, dtype))

    def product(self, *factors: str | float) -> str:
        """A product, multiplied in any order."""
        left = self.draw.sample(list(factors), len(factors))
        while len(left) > 1:
            first, second = left.pop(), left.pop()
            if isinstance(first, float):
                first, second = second, first
            if isinstance(first, float):
                left = [*left, first, second]
                self.draw.shuffle(left)
                continue
            joined = self.times(first, second) if isinstance(second, float) else self.either("Mul", first, second)
            left.insert(self.draw.randint(0, len(left)), joined)
        assert isinstance(left[0], str)
        return left[0]

    def square(self, value: str) -> str:
        """The square."""
        if self.draw.choice((True, False)):
            return self.op("Pow", value, self.constant(2))
        return self.op("Mul", value, value)

    def cube(self, value: str) -> str:
        """The third power."""
        if self.draw.random() < 0.5:
            return self.op("Pow", value, self.constant(3))
        return self.either("Mul", value, self.square(value))

    def over_root(self, value: str, radicand: str) -> str:
        """Divided by the square root of another value."""
        if self.draw.random() < 0.2:
            return self.either("Mul", value, self.op("Pow", radicand, self.constant(-0.5)))
        root = self.op("Sqrt", radicand) if self.draw.random() < 0.7 else self.op("Pow", radicand, self.constant(0.5))
        if self.draw.random() < 0.4:
            return self.op("Div", value, root)
        inverse = self.op("Reciprocal", root) if self.draw.random() < 0.5 else self.op("Div", self.constant(1), root)
        return self.either("Mul", value, inverse)

    def mean(self, value: str, axes: Sequence[int]) -> str:
        """The mean over some axes."""
        return self.op("ReduceMean", value, self.constant(axes, np.int64), keepdims=1)

    def graph(self, output: str, **changed: np.ndarray) -> DataflowGraph:
        """The graph of what was written, perhaps with other values of some constants."""
        proto = onnx.helper.make_model(
            onnx.helper.make_graph(
                self._nodes,
                "g",
                self._inputs,
                [onnx.helper.make_empty_tensor_value_info(output)],
                [
                    onnx.numpy_helper.from_array(np.asarray(changed.get(name, array)), name)
                    for name, array in self.constants.items()
                ],
            ),
            opset_imports=[onnx.helper.make_opsetid("", self._opset)],
            ir_version=10,
        )
        return DataflowGraph(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True)))
