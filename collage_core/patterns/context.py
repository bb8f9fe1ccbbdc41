"""Node information available to predicates and checks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.walk import bodies
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.tensor_spec import TensorSpec


@dataclasses.dataclass(frozen=True, slots=True)
class NodeContext:
    """One node, as a predicate sees it.

    Attributes:
        graph: The graph that contains it.
        index: Its index in the graph.
    """

    graph: DataflowGraph = dataclasses.field(repr=False)
    index: int

    @property
    def node(self) -> onnx_ir.Node:
        """The node itself."""
        return self.graph.nodes[self.index]

    @property
    def name(self) -> str:
        """Its unique name."""
        return self.graph.names[self.index]

    @property
    def op_type(self) -> str:
        """Operator type, e.g. `"Conv"`."""
        return self.node.op_type

    @property
    def domain(self) -> str:
        """Operator domain, `""` for ai.onnx."""
        return "" if self.node.domain == "ai.onnx" else self.node.domain

    @property
    def version(self) -> int:
        """Opset version of the domain."""
        return self.graph.version(self.index)

    @property
    def kind(self) -> OpPatternKind:
        """Fusion kind."""
        return self.graph.kinds[self.index]

    @property
    def inputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of its inputs; None for an absent optional one. Values its bodies capture are not among them."""
        return tuple(None if value is None else self.graph.spec(value) for value in self.node.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Specs of its outputs; an unused output has the name `""`."""
        return tuple(self.graph.spec(value) for value in self.node.outputs)

    @property
    def has_bodies(self) -> bool:
        """Whether it contains graphs, as If, Loop and Scan do."""
        return any(True for _ in bodies(self.node))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute; `default` if it is not set.

        The value is a number, a string, a tuple of these, or an array. ONNX's own defaults are not filled in.
        """
        attribute = self.node.attributes.get(name)
        if attribute is None or attribute.is_ref():
            return default
        if attribute.type == onnx_ir.AttributeType.TENSOR:
            return np.asarray(attribute.as_tensor().numpy())
        value = attribute.value
        return tuple(value) if isinstance(value, list) else value

    def is_constant(self, position: int) -> bool:
        """Return whether an input is present and a constant."""
        return position < len(self.node.inputs) and constant_of(self.node.inputs[position]) is not None

    def constant(self, position: int) -> np.ndarray[Any, Any] | None:
        """Return the value of a constant input; None if it is absent or computed."""
        tensor = constant_of(self.node.inputs[position]) if position < len(self.node.inputs) else None
        return None if tensor is None else np.asarray(tensor.numpy())
