"""Canonical form of a candidate: equal candidates get the same order of nodes, inputs, constants and outputs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.content import constant_of

_REFINEMENT_ROUNDS = 4
_MAX_TIED_SINKS = 8
"""Maximum number of equal-looking sinks that are ordered canonically; with more, the order is arbitrary.

Equal candidates may then hash differently, which costs a measurement; different ones never hash the same.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Composite:
    """A labelled part of a candidate: a group of operators that its toolchain has one kernel for.

    Attributes:
        label: Name of the pattern, e.g. `"cutlass.dense_bias_relu"`.
        nodes: Mask of its nodes.
        attributes: Result of the pattern's `attrs_getter`, as sorted pairs.
        parts: Labelled parts inside, disjoint.
    """

    label: str
    nodes: int
    attributes: tuple[tuple[str, str], ...] = ()
    parts: tuple[Composite, ...] = ()

    def within(self, nodes: int) -> Composite | None:
        """Return what is left of it inside a set of nodes; None if nothing is."""
        inside = tuple(found for part in self.parts if (found := part.within(nodes)) is not None)
        return dataclasses.replace(self, nodes=self.nodes & nodes, parts=inside) if self.nodes & nodes else None

    @property
    def fault(self) -> str:
        """Why its parts are not its own; empty if they are."""
        return overlap(self.parts, self.nodes)

    def in_order(self, order: Mapping[int, int]) -> str:
        """Return it as text, equal for equal composites of equal candidates.

        Args:
            order: Place of each node in the candidate.
        """
        inside = sorted(part.in_order(order) for part in self.parts)
        text = f"{self.label}{self.attributes}{sorted(order[index] for index in iterate_bits(self.nodes))}"
        return f"{text}{inside}" if inside else text


def overlap(parts: Iterable[Composite], nodes: int) -> str:
    """Say which of some composites leaves a set of nodes or shares a node with an earlier one; empty if none does."""
    free = nodes
    for part in parts:
        if part.nodes & ~free:
            return f"its parts are not disjoint subsets of it: {part.label}"
        if part.fault:
            return part.fault
        free &= ~part.nodes
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class CanonicalForm:
    """One candidate, ordered by its structure alone.

    Attributes:
        order: Indices of its nodes, in topological order.
        inputs: Values it reads from outside, constants excluded, in order of first use.
        constants: Constants it reads, in order of first use.
        outputs: Values it produces that are used outside or are graph outputs.
        text: The structure without names; candidates with equal texts are equal.
    """

    order: tuple[int, ...]
    inputs: tuple[onnx_ir.Value, ...]
    constants: tuple[onnx_ir.Value, ...]
    outputs: tuple[onnx_ir.Value, ...]
    text: str


def canonical_form(graph: DataflowGraph, nodes: int, composites: Iterable[Composite] = ()) -> CanonicalForm:
    """Order a candidate by its structure.

    A node's inputs are ordered, so a depth-first walk from one sink has one possible order. Multiple sinks (inside
    nodes that no inside node reads) are ordered by the structure above them.

    Args:
        graph: The graph.
        nodes: Mask of the candidate's nodes.
        composites: Labelled parts of the candidate.
    """
    sinks = [index for index in iterate_bits(nodes) if not graph.successors[index] & nodes]
    if len(sinks) > 1:
        sinks = _ordered(graph, nodes, sinks)
    order: dict[int, int] = {}
    for sink in sinks:
        _walk(graph, nodes, sink, order)
    text, inputs, constants, outputs = _written(graph, nodes, order)
    labels = sorted(part.in_order(order) for part in composites)
    return CanonicalForm(tuple(order), inputs, constants, outputs, "\n".join([text, *labels]))


def structural_hash(graph: DataflowGraph, nodes: int, composites: Iterable[Composite] = ()) -> str:
    """Compute the hash under which measurements of a candidate are stored.

    It includes wiring, operators with domain and version, attributes, shapes, dtypes, which inputs are constants, the
    values of integer, boolean and small constants, which inside values are outputs, and the labelled parts. It
    excludes names, the order of nodes in the file, and the values of larger float weights.

    Returns:
        64 hexadecimal digits.
    """
    return hashlib.sha256(canonical_form(graph, nodes, composites).text.encode()).hexdigest()


def _walk(graph: DataflowGraph, nodes: int, sink: int, order: dict[int, int]) -> None:
    stack = [sink]
    while stack:
        index = stack[-1]
        if index in order:
            stack.pop()
            continue
        pending = []
        if graph.predecessors[index] & nodes:
            for value in reversed(graph.operands[index]):
                producer = graph.producer(value) if value is not None else None
                if producer is not None and nodes >> producer & 1 and producer not in order:
                    pending.append(producer)
        if pending:
            stack.extend(pending)
        else:
            order[index] = len(order)
            stack.pop()


def _written(
    graph: DataflowGraph, nodes: int, order: dict[int, int]
) -> tuple[str, tuple[onnx_ir.Value, ...], tuple[onnx_ir.Value, ...], tuple[onnx_ir.Value, ...]]:
    tokens: dict[onnx_ir.Value, str] = {}
    inputs: list[onnx_ir.Value] = []
    constants: list[onnx_ir.Value] = []
    outputs: list[onnx_ir.Value] = []
    lines: list[str] = []
    for index, position in order.items():
        words = [graph.signature(index)]
        for value in graph.operands[index]:
            if value is None:
                words.append("-")
                continue
            token = tokens.get(value)
            if token is None:
                if constant_of(value) is None:
                    token = f"i{len(inputs)}"
                    inputs.append(value)
                else:
                    token = f"c{len(constants)}"
                    constants.append(value)
                tokens[value] = token
            words.append(token)
        for slot, value in enumerate(graph.nodes[index].outputs):
            tokens[value] = f"{position}.{slot}"
            if graph.is_exported(value, nodes):
                outputs.append(value)
                words.append(f">{slot}")
        lines.append(" ".join(words))
    return "\n".join(lines), tuple(inputs), tuple(constants), tuple(outputs)


def _ordered(graph: DataflowGraph, nodes: int, sinks: Sequence[int]) -> list[int]:
    cones = {sink: _text_after(graph, nodes, {}, sink) for sink in sinks}
    if len(set(cones.values())) == len(sinks):
        return sorted(sinks, key=cones.__getitem__)
    colours = _refined(graph, nodes)
    keys = {sink: (cones[sink], colours[sink]) for sink in sinks}
    result: list[int] = []
    order: dict[int, int] = {}
    for key in sorted(set(keys.values())):
        tied = [sink for sink in sinks if keys[sink] == key]
        while tied:
            best = tied[0]
            if 1 < len(tied) <= _MAX_TIED_SINKS:
                best = min(tied, key=lambda sink: _text_after(graph, nodes, order, sink))
            tied.remove(best)
            result.append(best)
            _walk(graph, nodes, best, order)
    return result


def _text_after(graph: DataflowGraph, nodes: int, order: dict[int, int], sink: int) -> str:
    """Return the structure of a sink and the nodes above it, given the nodes ordered so far."""
    extended = dict(order)
    _walk(graph, nodes, sink, extended)
    return _written(graph, nodes, extended)[0]


def _refined(graph: DataflowGraph, nodes: int) -> dict[int, str]:
    """Colour nodes by their surroundings (Weisfeiler-Leman); equal candidates get equal colours."""
    inside = list(iterate_bits(nodes))
    colours = {index: graph.signature(index) for index in inside}
    for _ in range(_REFINEMENT_ROUNDS):
        readers: dict[onnx_ir.Value, list[str]] = {}
        for index in inside:
            for slot, value in enumerate(graph.operands[index]):
                if value is not None:
                    readers.setdefault(value, []).append(f"{colours[index]}.{slot}")
        around = {value: "".join(sorted(colour)) for value, colour in readers.items()}
        fresh = {}
        for index in inside:
            above = []
            for value in graph.operands[index]:
                producer = graph.producer(value) if value is not None else None
                if value is None:
                    above.append("-")
                elif producer is not None and nodes >> producer & 1:
                    above.append(colours[producer])
                else:
                    above.append(around[value])
            below = [around.get(value, "") for value in graph.nodes[index].outputs]
            text = "|".join([colours[index], *above, ">", *below])
            fresh[index] = hashlib.sha256(text.encode()).hexdigest()[:16]
        colours = fresh
    return colours
