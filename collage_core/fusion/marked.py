"""Calls of functions marked as one kernel: by an earlier fusion, or annotated by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from collage_core.contract.support import Supported, Unsupported
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import extract
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.graph.metadata_keys import COMPOSITE_METADATA
from collage_core.patterns import FusionPattern, Mismatch

Takes = Callable[[DataflowGraph, int], Supported | Unsupported]
"""Decides whether a toolchain supports one node of a graph."""


def marked_call(graph: DataflowGraph, index: int) -> SubGraph:
    """Create the candidate for a marked call, with the label and attributes of its function."""
    metadata = graph.model.functions[graph.nodes[index].op_identifier()].metadata_props
    prefix = f"{COMPOSITE_METADATA}."
    attributes = sorted((key.removeprefix(prefix), value) for key, value in metadata.items() if key.startswith(prefix))
    return SubGraph(graph, 1 << index, metadata.get(COMPOSITE_METADATA, ""), attributes=tuple(attributes))


def offered_call(graph: DataflowGraph, index: int, toolchain: str, takes: Takes) -> SubGraph | Unsupported:
    """Create a toolchain's candidate for a marked call, or return why it cannot have one.

    A call that the model assigns to a toolchain is that toolchain's candidate without further checks. An unassigned
    call is open to every toolchain that takes all nodes inside.

    Args:
        graph: The graph.
        index: A call of a marked function, one of `graph.compilers`.
        toolchain: Name of the toolchain.
        takes: Returns whether the toolchain takes a node.
    """
    owner = graph.compilers[index]
    if owner not in ("", toolchain):
        return Unsupported(f"the model gives it to {owner}")
    if not owner:
        inside = body_of(graph, index)
        for node in iterate_bits(inside.all_mask):
            answer = takes(inside, node)
            if not answer:
                return Unsupported(f"inside of it, {inside.nodes[node].op_type}: {answer.reason}")
    return marked_call(graph, index)


def body_of(graph: DataflowGraph, index: int) -> DataflowGraph:
    """Extract the body of a marked function at one call, with the constants of that call."""
    return DataflowGraph(extract(graph, 1 << index, name="body").model)


@dataclasses.dataclass(frozen=True)
class PrimitiveRule(FusionRule):
    """Proposes every call of a function marked as one kernel, alone; `OpPredicateRule` proposes them too.

    Proposes the calls that the model assigns to this toolchain, and unassigned ones: all of them, or, for a
    toolchain that names its kernels by patterns, those that a pattern matches as a whole, labelled with the
    pattern's name.

    Attributes:
        patterns: The toolchain's patterns; empty if it fuses by kinds.
    """

    patterns: tuple[FusionPattern, ...] = ()

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Propose every marked call that the toolchain may have, and the reasons for the others."""
        found = []
        refusals: dict[int, str] = {}
        for index, owner in graph.compilers.items():
            call = offered_call(graph, index, context.target.toolchain, _nothing_to_ask)
            if index in context.refusals:
                refusals[index] = context.refusals[index]
            elif isinstance(call, Unsupported):
                refusals[index] = call.reason
            elif owner or not self.patterns:
                found.append(call)
            elif label := self._label(body_of(graph, index)):
                found.append(call.labelled(label, dict(call.attributes)))
            else:
                refusals[index] = "no pattern matches the whole of a fusion the model asks for"
        return RuleOutcome(sub_graphs=tuple(found), refusals=refusals)

    def _label(self, body: DataflowGraph) -> str:
        """Return the name of the first pattern that matches a whole body; empty if none does."""
        for pattern in self.patterns:
            for index in reversed(range(len(body))):
                found = pattern.match(body, index)
                if isinstance(found, Mismatch) or body.needs_kernel & ~found.nodes:
                    continue
                if pattern.check is None or pattern.check(found):
                    return pattern.name
        return ""


def _nothing_to_ask(graph: DataflowGraph, index: int) -> Supported:
    return Supported()
