"""Matching patterns against a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.content import constant_of
from collage_core.ir.dataflow import DataflowGraph
from collage_core.ir.index_set import iterate_bits
from collage_core.ir.tensor_spec import TensorSpec
from collage_core.patterns.context import NodeContext
from collage_core.patterns.pattern import (
    COMMUTATIVE,
    Absent,
    Alternative,
    Capture,
    Constant,
    Constrained,
    Operator,
    Pattern,
    Wildcard,
    same_domain,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """Where a pattern matched.

    Attributes:
        graph: The graph.
        root: Index of the node whose output the pattern matched.
        nodes: Mask of the nodes operators of the pattern matched; what wildcards matched is outside.
        captures: Values by the names the pattern gave them.
    """

    graph: DataflowGraph = dataclasses.field(repr=False)
    root: int
    nodes: int
    captures: Mapping[str, onnx_ir.Value]

    def node(self, name: str) -> NodeContext:
        """The operator that produces a captured value.

        Raises:
            KeyError: If nothing was captured under `name`, or what was is no node's output.
        """
        producer = self.graph.producer(self.captures[name])
        if producer is None:
            raise KeyError(f"{name} is an input or a constant, no node's output")
        return NodeContext(self.graph, producer)

    def spec(self, name: str) -> TensorSpec:
        """What is known of a captured value: shape and dtype, also of a constant, which is not read for it.

        Raises:
            KeyError: If nothing was captured under `name`.
        """
        return self.graph.spec(self.captures[name])

    @property
    def exits(self) -> tuple[str, ...]:
        """Names of the matched nodes' values that are used outside or are graph outputs.

        More than the root's own means that a kernel of the match has further outputs.
        """
        values = (value for index in iterate_bits(self.nodes) for value in self.graph.nodes[index].outputs)
        return tuple(str(value.name) for value in values if self.graph.is_exported(value, self.nodes))

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """A captured constant; None if nothing was captured under `name` or it is computed."""
        tensor = constant_of(self.captures.get(name))
        return None if tensor is None else np.asarray(tensor.numpy())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Why a pattern does not match at a node; false in a boolean context.

    Attributes:
        reason: What failed in the attempt that got furthest.
        nodes: Mask of the nodes that attempt had matched.
    """

    reason: str
    nodes: int

    def __bool__(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """A partial match. `bound` has the value of each pattern seen, by identity, so that a shared one matches once."""

    nodes: int
    bound: Mapping[int, onnx_ir.Value | None]
    captures: Mapping[str, onnx_ir.Value]


def match(pattern: Pattern, graph: DataflowGraph, index: int) -> Match | Mismatch:
    """Matches a pattern with its root at one node.

    Alternatives and operand orders are tried in order, with backtracking; the first match is returned.

    Args:
        pattern: The pattern; its root is an operator, perhaps one of several or with optional operators around.
        graph: The graph.
        index: The node whose output is the pattern's value.
    """
    attempt = _Attempt(graph)
    for value in graph.nodes[index].outputs:
        for state in attempt.matches(pattern, value, _State(0, {}, {})):
            if state.nodes >> index & 1:
                return Match(graph=graph, root=index, nodes=state.nodes, captures=dict(state.captures))
    return Mismatch(reason=attempt.reason or "the pattern has no operator", nodes=attempt.nodes)


def match_model(pattern: Pattern, model: onnx_ir.Model) -> Match | Mismatch:
    """Matches a pattern with a whole model: what a kernel function lowers is what its pattern found.

    So lowering need not find out in another way what is the weight and what the bias.

    Args:
        pattern: The pattern.
        model: For example a `KernelFunction.model`.
    """
    graph = DataflowGraph(model)
    furthest = Mismatch(reason="the model has no operator", nodes=0)
    for index in reversed(range(len(graph))):
        found = match(pattern, graph, index)
        if isinstance(found, Mismatch):
            furthest = max(furthest, found, key=lambda each: each.nodes.bit_count())
        elif graph.needs_kernel & ~found.nodes == 0:
            return found
    return furthest


class _Attempt:
    """One search for a match; keeps the failure that came after the most matched nodes."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self.reason = ""
        self.nodes = 0

    def _failed(self, state: _State, reason: str) -> None:
        if not self.reason or state.nodes.bit_count() > self.nodes.bit_count():
            self.reason, self.nodes = reason, state.nodes

    def matches(self, pattern: Pattern, value: onnx_ir.Value | None, state: _State) -> Iterator[_State]:
        key = id(pattern)
        if key in state.bound:
            if state.bound[key] is value:
                yield state
            else:
                self._failed(state, f"{_name(value)} is not the value matched before")
            return
        for found in self._unbound(pattern, value, state):
            yield dataclasses.replace(found, bound={**found.bound, key: value})

    def _unbound(self, pattern: Pattern, value: onnx_ir.Value | None, state: _State) -> Iterator[_State]:
        match pattern:
            case Absent():
                if value is None:
                    yield state
                else:
                    self._failed(state, f"{_name(value)} should be absent")
            case Alternative(choices):
                for choice in choices:
                    yield from self.matches(choice, value, state)
            case _ if value is None:
                self._failed(state, "an operand is absent")
            case Wildcard():
                yield state
            case Constant():
                yield from self._constant(pattern, value, state)
            case Capture(inner, name):
                for found in self.matches(inner, value, state):
                    yield dataclasses.replace(found, captures={**found.captures, name: value})
            case Constrained(inner, holds, meaning):
                if holds(self._graph.spec(value)):
                    yield from self.matches(inner, value, state)
                else:
                    self._failed(state, f"{_name(value)} has not {meaning}")
            case Operator():
                yield from self._operator(pattern, value, state)
            case _:
                raise TypeError(f"{pattern!r} is no pattern")

    def _constant(self, pattern: Constant, value: onnx_ir.Value, state: _State) -> Iterator[_State]:
        tensor = constant_of(value)
        if tensor is None:
            self._failed(state, f"{_name(value)} is not a constant")
        elif pattern.holds is not None and not pattern.holds(np.asarray(tensor.numpy())):
            self._failed(state, f"{_name(value)} is not {pattern.meaning}")
        else:
            yield state

    def _operator(self, pattern: Operator, value: onnx_ir.Value, state: _State) -> Iterator[_State]:
        index = self._graph.producer(value)
        wanted = " or ".join(pattern.op_types)
        if index is None:
            self._failed(state, f"{_name(value)} is an input or a constant, not from {wanted}")
            return
        node = self._graph.nodes[index]
        if node.op_type not in pattern.op_types or not same_domain(node, pattern.domain):
            self._failed(state, f"{self._graph.names[index]} is {node.op_type}, not {wanted}")
            return
        if pattern.output is not None and node.outputs[pattern.output] is not value:
            self._failed(state, f"{_name(value)} is not output {pattern.output} of {self._graph.names[index]}")
            return
        context = NodeContext(self._graph, index)
        for name, want in pattern.attributes.items():
            have = context.attribute(name)
            if not (want(have) if callable(want) else have == want):
                self._failed(state, f"{context.name} has {name}={have!r}")
                return
        inside = dataclasses.replace(state, nodes=state.nodes | 1 << index)
        if pattern.operands is None:
            yield inside
            return
        operands = list(node.inputs)
        while operands and operands[-1] is None:
            operands.pop()
        patterns = list(pattern.operands)
        if len(operands) > len(patterns) and not pattern.open_ended:
            self._failed(inside, f"{context.name} has {len(operands)} operands, the pattern {len(patterns)}")
            return
        operands += [None] * (len(patterns) - len(operands))
        yield from self._operands(patterns, operands, inside)
        if node.op_type in COMMUTATIVE and len(patterns) == len(operands) == 2:
            yield from self._operands(patterns, operands[::-1], inside)

    def _operands(
        self, patterns: list[Pattern], operands: list[onnx_ir.Value | None], state: _State
    ) -> Iterator[_State]:
        if not patterns:
            yield state
            return
        for found in self.matches(patterns[0], operands[0], state):
            yield from self._operands(patterns[1:], operands[1:], found)


def _name(value: onnx_ir.Value | None) -> str:
    return "an absent operand" if value is None else f"{value.name!r}"
