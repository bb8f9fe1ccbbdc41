"""Build small models in memory, node by node, with every shape inferred."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.graph.walk import bodies, captured_values
from collage_core.ir.io.inference import infer_model
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes

OPSET = 21
IR_VERSION = 10


class GraphBuilder:
    """Appends nodes to a graph; each method returns the value it defines.

    Values and nodes are named by operator and number, `conv_0`, `conv_1`, in the order of the calls.

    Args:
        name: Name of the graph.
        seed: Seed for weights.
        opset: Version of the default domain.

    Examples:
        >>> g = GraphBuilder()
        >>> y = g.op("Relu", g.op("MatMul", g.input("x", 2, 3), g.weight("w", 3, 4)))
        >>> model = g.model(y)
        >>> [node.name for node in model.graph], model.graph.outputs[0].shape.numpy()
        (['matmul_0', 'relu_0'], (2, 4))
    """

    def __init__(self, name: str = "model", *, seed: int = 0, opset: int = OPSET) -> None:
        self._name = name
        self._opset = opset
        self._random = np.random.default_rng(seed)
        self._inputs: list[onnx_ir.Value] = []
        self._initializers: list[onnx_ir.Value] = []
        self._nodes: list[onnx_ir.Node] = []
        self._counts: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Number of nodes and constants so far; makes names unique."""
        return len(self._nodes) + len(self._initializers)

    def input(
        self, name: str, *shape: int | str | None, dtype: onnx_ir.DataType = onnx_ir.DataType.FLOAT
    ) -> onnx_ir.Value:
        """Add a graph input."""
        value = onnx_ir.val(name, dtype, shape)
        self._inputs.append(value)
        return value

    def constant(self, name: str, array: Any) -> onnx_ir.Value:
        """Add an initializer with these elements."""
        elements = np.asarray(array)
        tensor = onnx_ir.tensor(elements, name=name)
        value = onnx_ir.val(name, tensor.dtype, elements.shape, const_value=tensor)
        self._initializers.append(value)
        return value

    def ints(self, *elements: int) -> onnx_ir.Value:
        """Add a one-dimensional int64 initializer: a shape, axes, pads."""
        return self.constant(self._numbered("ints"), np.array(elements, np.int64))

    def weight(self, name: str, *shape: int) -> onnx_ir.Value:
        """Add a float32 initializer of random elements, scaled so that products keep the scale of the other operand."""
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:] or shape)))
        return self.constant(name, (self._random.standard_normal(shape) * scale).astype(np.float32))

    def op(
        self, op_type: str, *inputs: onnx_ir.Value | None, name: str | None = None, domain: str = "", **attributes: Any
    ) -> onnx_ir.Value:
        """Add a node with one output."""
        [output] = self.ops(op_type, 1, *inputs, name=name, domain=domain, **attributes)
        return output

    def ops(
        self,
        op_type: str,
        count: int,
        *inputs: onnx_ir.Value | None,
        name: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[onnx_ir.Value]:
        """Add a node with several outputs.

        Args:
            op_type: Operator type.
            count: Number of outputs.
            *inputs: Its inputs; None omits an optional one.
            name: Name of the node; numbered by default.
            domain: Domain of the operator.
            **attributes: Its attributes.
        """
        name = name or self._numbered(op_type.lower())
        names = [name] if count == 1 else [f"{name}_{place}" for place in range(count)]
        outputs = [onnx_ir.Value(name=each) for each in names]
        self._nodes.append(onnx_ir.node(op_type, inputs, attributes, domain=domain, outputs=outputs, name=name))
        return outputs

    def model(self, *outputs: onnx_ir.Value) -> onnx_ir.Model:
        """Return the finished model, with shapes inferred, without nodes and constants no output depends on."""
        nodes, read = self._needed(outputs)
        graph = onnx_ir.Graph(
            self._inputs,
            outputs,
            nodes=nodes,
            initializers=[value for value in self._initializers if value in read],
            opset_imports={**{node.domain: 1 for node in nodes}, "": self._opset},
            name=self._name,
        )
        model = onnx_ir.Model(graph, ir_version=IR_VERSION)
        if len(nodes) < len(self._nodes):  # what is left out would still count as a use of what it reads
            model = model_from_bytes(model_to_bytes(model))
        infer_model(model)
        return model

    def _needed(self, outputs: Sequence[onnx_ir.Value]) -> tuple[list[onnx_ir.Node], set[onnx_ir.Value | None]]:
        """Return the nodes the outputs depend on, and all values read."""
        read: set[onnx_ir.Value | None] = set(outputs)
        nodes = []
        for node in reversed(self._nodes):
            if not read.isdisjoint(node.outputs):
                nodes.append(node)
                read.update(node.inputs)
                if any(True for _ in bodies(node)):
                    read.update(captured_values(node))
        return nodes[::-1], read

    def _numbered(self, stem: str) -> str:
        count = self._counts.get(stem, 0)
        self._counts[stem] = count + 1
        return f"{stem}_{count}"
