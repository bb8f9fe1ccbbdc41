"""Fusion as passes over a model: by post-dominators, and by patterns.

Each takes a prepared model and rewrites it in place: what is one kernel becomes a call of a function marked
`collage.primitive`. What is marked already, by hand or by an earlier pass, is left alone, so passes can follow each
other in any order and running one twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult

from collage_core.fusion.coalesce import Units
from collage_core.fusion.post_dominator import FuseLimits, post_dominator_groups
from collage_core.fusion.quantised import is_split, quantised_groups
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.passes.marking import Mark, mark_groups
from collage_core.patterns import FusionPattern, Mismatch


class FuseOps(InPlacePass):
    """Classic fusion, `post_dominator_groups`: groups of two or more operators become functions nobody owns yet.

    Single operators stay as they are, and views at the border of a group stay outside.

    Args:
        limits: How large groups may become; those of TVM if None.
    """

    def __init__(self, limits: FuseLimits | None = None) -> None:
        super().__init__()
        self._limits = limits or FuseLimits()

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Rewrites a prepared model."""
        graph = DataflowGraph(model)
        groups = []
        for nodes in post_dominator_groups(graph, self._limits):
            completed = graph.completed(nodes)
            if (completed & graph.needs_kernel).bit_count() > 1:
                groups.append((SubGraph(graph, completed), Mark()))
        return PassResult(model, modified=mark_groups(graph, groups))


class FuseOpsByPattern(InPlacePass):
    """Every match of some patterns becomes a function labelled with its pattern's name.

    Patterns come in order of their priority: what an earlier one took, no later one gets. Of one pattern's matches
    those nearest the end of the graph come first. A match is left alone that holds a node marked already or part of a
    quantised operator, that the pattern's `check` refuses, or that would wait for its own result.

    Args:
        patterns: The patterns; those of equal priority are tried as they come.
        toolchain: Who is to run what matches; empty to leave that open.
        bind_constants: Whether the constants of a match become part of its function. If not, they are its arguments,
            and all equal structures share one function.
    """

    def __init__(self, patterns: Sequence[FusionPattern], *, toolchain: str = "", bind_constants: bool = False) -> None:
        super().__init__()
        self._patterns = tuple(sorted(patterns, key=lambda pattern: -pattern.priority))
        self._mark = Mark(toolchain=toolchain, bind_constants=bind_constants)

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Rewrites a prepared model."""
        graph = DataflowGraph(model)
        taken = mask_of(graph.compilers)
        chosen: list[SubGraph] = []
        quantised = quantised_groups(graph)
        units = Units(graph, [1 << index for index in iterate_bits(graph.all_mask)])
        for pattern in self._patterns:
            for index in reversed(list(iterate_bits(graph.needs_kernel))):
                found = None if taken >> index & 1 else _match(pattern, graph, index)
                if found is None or found.nodes & taken or is_split(quantised, found.nodes):
                    continue
                if units.merge(units.holding(found.nodes)) is not None:
                    chosen.append(found)
                    taken |= found.nodes
        return PassResult(model, modified=mark_groups(graph, [(each, self._mark) for each in chosen]))


def _match(pattern: FusionPattern, graph: DataflowGraph, index: int) -> SubGraph | None:
    found = pattern.match(graph, index)
    if isinstance(found, Mismatch):
        return None
    if pattern.check is not None and not pattern.check(found):
        return None
    attributes = pattern.attrs_getter(found) if pattern.attrs_getter is not None else {}
    nodes = graph.completed(found.nodes)
    return SubGraph(graph, nodes, pattern.name, attributes=tuple(sorted(attributes.items()))) if nodes else None
