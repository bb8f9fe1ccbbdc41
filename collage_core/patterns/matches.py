"""Results of trying a pattern: a match with its surroundings, or how far it got and why it failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.patterns.context import NodeContext
from collage_core.patterns.pattern import Pattern


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """A match of a pattern, with its surroundings for use in checks.

    The counterparts in Relax's `PatternCheckContext` are the matched expression (`value`), the annotated
    expressions (`captures`), the bindings (`bindings`) and the uses of variables (`users`): ONNX's values are
    its variables.

    Attributes:
        graph: The graph.
        root: Index of the node whose output the pattern matched.
        value: That output.
        nodes: Mask of the nodes matched by the pattern's operators, without those matched by wildcards.
        captures: Values by the names that the pattern, or the annotations of a `FusionPattern`, gave them. A
            name that matched several values has the first, see `all_captured`.
        bindings: The value of each pattern used in the match, None for an absent operand.
    """

    graph: DataflowGraph = dataclasses.field(repr=False)
    root: int
    value: onnx_ir.Value
    nodes: int
    captures: Mapping[str, onnx_ir.Value]
    bindings: Mapping[Pattern, onnx_ir.Value | None] = dataclasses.field(default_factory=dict, repr=False)
    _captured: Mapping[str, tuple[onnx_ir.Value, ...]] = dataclasses.field(default_factory=dict, repr=False)

    # What was captured

    def annotated(self, annotations: Mapping[str, Pattern]) -> Match:
        """Return the same match with the values of named parts captured too; parts without a value are skipped.

        Args:
            annotations: Parts of the pattern, by name.
        """
        values = {name: self.bindings.get(part) for name, part in annotations.items()}
        found = {name: value for name, value in values.items() if value is not None}
        captured = {name: (value,) for name, value in found.items()}
        return dataclasses.replace(self, captures={**self.captures, **found}, _captured={**self._captured, **captured})

    def all_captured(self, name: str) -> tuple[onnx_ir.Value, ...]:
        """Return the distinct values captured under a name, operands before their readers, left before right."""
        return self._captured.get(name, ())

    def node(self, name: str) -> NodeContext:
        """Return the operator that produces a captured value.

        Raises:
            KeyError: If nothing was captured under `name`, or the captured value is not the output of a node.
        """
        producer = self.producer(self.captures[name])
        if producer is None:
            raise KeyError(f"{name} is an input or a constant, no node's output")
        return producer

    def spec(self, name: str) -> TensorSpec:
        """Return the shape and dtype of a captured value, as far as known; constants are not read for this.

        Raises:
            KeyError: If nothing was captured under `name`.
        """
        return self.graph.spec(self.captures[name])

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return a captured constant; None if nothing was captured under `name` or it is computed."""
        tensor = constant_of(self.captures.get(name))
        return None if tensor is None else np.asarray(tensor.numpy())

    # Inside and outside

    @property
    def contexts(self) -> tuple[NodeContext, ...]:
        """The nodes inside, in the graph's order."""
        return tuple(NodeContext(self.graph, index) for index in iterate_bits(self.nodes))

    def producer(self, value: onnx_ir.Value) -> NodeContext | None:
        """Return the node that outputs a value, inside or outside; None for a graph input or a constant."""
        index = self.graph.producer(value)
        return None if index is None else NodeContext(self.graph, index)

    def users(self, value: onnx_ir.Value) -> tuple[NodeContext, ...]:
        """Return the nodes that read a value, inside and outside the match, in the graph's order."""
        return tuple(NodeContext(self.graph, index) for index in iterate_bits(self.graph.users(value)))

    @property
    def outputs(self) -> tuple[onnx_ir.Value, ...]:
        """The matched nodes' values that are used outside or are graph outputs, in the graph's order."""
        values = (value for index in iterate_bits(self.nodes) for value in self.graph.nodes[index].outputs)
        return tuple(value for value in values if self.graph.is_exported(value, self.nodes))

    @property
    def exits(self) -> tuple[str, ...]:
        """Names of `outputs`.

        If there are more than the root's own, a kernel of the match has further outputs.
        """
        return tuple(str(value.name) for value in self.outputs)

    @property
    def outside_users(self) -> Mapping[onnx_ir.Value, tuple[NodeContext, ...]]:
        """Nodes outside that read values from inside, by value; empty for a graph output that no node reads."""
        return {
            value: tuple(user for user in self.users(value) if not self.nodes >> user.index & 1)
            for value in self.outputs
        }

    @property
    def inputs(self) -> tuple[onnx_ir.Value, ...]:
        """Non-constant values that the matched nodes read from outside, each once, in order of reading."""
        return tuple(value for value in self._read if constant_of(value) is None)

    @property
    def constants(self) -> Mapping[str, onnx_ir.TensorProtocol]:
        """Constants that the matched nodes read, by value name; their content is read on demand."""
        found = ((str(value.name), constant_of(value)) for value in self._read)
        return {name: tensor for name, tensor in found if tensor is not None}

    @property
    def _read(self) -> tuple[onnx_ir.Value, ...]:
        """The values read from outside."""
        found: dict[onnx_ir.Value, None] = {}
        for value in self.graph.read_values(iterate_bits(self.nodes)):
            producer = self.graph.producer(value)
            if producer is None or not self.nodes >> producer & 1:
                found.setdefault(value)
        return tuple(found)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Why a pattern does not match at a node; false in a boolean context.

    Attributes:
        reason: The failure of the attempt that got furthest.
        nodes: Mask of the nodes that attempt had matched: the deepest partial match.
        captures: Values that attempt had captured.
    """

    reason: str
    nodes: int
    captures: Mapping[str, onnx_ir.Value] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return False
