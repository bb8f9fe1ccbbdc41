"""What comes of trying a pattern: a match with its surroundings, or how far it got and why no further."""

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
    """Where a pattern matched, with what a check may want to know of the surroundings.

    Where Relax's `PatternCheckContext` has the matched expression, the annotated ones, the bindings and the uses of
    variables, this has `value`, `captures`, `bindings` and `users`: ONNX's values are its variables.

    Attributes:
        graph: The graph.
        root: Index of the node whose output the pattern matched.
        value: That output.
        nodes: Mask of the nodes operators of the pattern matched; what wildcards matched is outside.
        captures: Values by the names the pattern, or the annotations of a `FusionPattern`, gave them. A name that was
            met several times has the first, see `all_captured`.
        bindings: The value of each pattern that took part, None for an operand that is absent.
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
        """The same match, in which the values of parts of the pattern are captured too; parts without one are not.

        Args:
            annotations: The parts, by name.
        """
        values = {name: self.bindings.get(part) for name, part in annotations.items()}
        found = {name: value for name, value in values.items() if value is not None}
        captured = {name: (value,) for name, value in found.items()}
        return dataclasses.replace(self, captures={**self.captures, **found}, _captured={**self._captured, **captured})

    def all_captured(self, name: str) -> tuple[onnx_ir.Value, ...]:
        """The different values captured under a name, operands before what reads them, left before right."""
        return self._captured.get(name, ())

    def node(self, name: str) -> NodeContext:
        """The operator that produces a captured value.

        Raises:
            KeyError: If nothing was captured under `name`, or what was is no node's output.
        """
        producer = self.producer(self.captures[name])
        if producer is None:
            raise KeyError(f"{name} is an input or a constant, no node's output")
        return producer

    def spec(self, name: str) -> TensorSpec:
        """What is known of a captured value: shape and dtype, also of a constant, which is not read for it.

        Raises:
            KeyError: If nothing was captured under `name`.
        """
        return self.graph.spec(self.captures[name])

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """A captured constant; None if nothing was captured under `name` or it is computed."""
        tensor = constant_of(self.captures.get(name))
        return None if tensor is None else np.asarray(tensor.numpy())

    # Inside and outside

    @property
    def contexts(self) -> tuple[NodeContext, ...]:
        """The nodes inside, in the graph's order."""
        return tuple(NodeContext(self.graph, index) for index in iterate_bits(self.nodes))

    def producer(self, value: onnx_ir.Value) -> NodeContext | None:
        """The node whose output a value is, inside or outside; None for a graph input or a constant."""
        index = self.graph.producer(value)
        return None if index is None else NodeContext(self.graph, index)

    def users(self, value: onnx_ir.Value) -> tuple[NodeContext, ...]:
        """The nodes that read a value, inside and outside, in the graph's order."""
        return tuple(NodeContext(self.graph, index) for index in iterate_bits(self.graph.users(value)))

    @property
    def outputs(self) -> tuple[onnx_ir.Value, ...]:
        """The matched nodes' values that are used outside or are graph outputs, in the graph's order."""
        values = (value for index in iterate_bits(self.nodes) for value in self.graph.nodes[index].outputs)
        return tuple(value for value in values if self.graph.is_exported(value, self.nodes))

    @property
    def exits(self) -> tuple[str, ...]:
        """Names of `outputs`.

        More than the root's own means that a kernel of the match has further outputs.
        """
        return tuple(str(value.name) for value in self.outputs)

    @property
    def outside_users(self) -> Mapping[onnx_ir.Value, tuple[NodeContext, ...]]:
        """Who outside reads values from inside; a graph output nobody reads is there with no one."""
        return {
            value: tuple(user for user in self.users(value) if not self.nodes >> user.index & 1)
            for value in self.outputs
        }

    @property
    def inputs(self) -> tuple[onnx_ir.Value, ...]:
        """The values the matched nodes read from outside that are no constants, each once, in order of reading."""
        return tuple(value for value in self._read if constant_of(value) is None)

    @property
    def constants(self) -> Mapping[str, onnx_ir.TensorProtocol]:
        """The constants the matched nodes read, by the names of their values; their content is read when asked for."""
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
        reason: What failed in the attempt that got furthest.
        nodes: Mask of the nodes that attempt had matched: the deepest partial match.
        captures: What it had captured.
    """

    reason: str
    nodes: int
    captures: Mapping[str, onnx_ir.Value] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return False
