"""Fusion as model passes: by post-dominators, and by patterns.

Each pass takes a prepared model and rewrites it in place: a kernel becomes a call of a function marked
`collage.primitive`. Existing marks, by hand or by an earlier pass, are kept, so passes can be combined in any order
and repeating one changes nothing.
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
    """Classic fusion, `post_dominator_groups`: groups of two or more operators become functions without an owner.

    Single operators are left unchanged, and views at the border of a group stay outside.

    Args:
        limits: Limits on the size of groups; those of TVM if None.
    """

    def __init__(self, limits: FuseLimits | None = None) -> None:
        super().__init__()
        self._limits = limits or FuseLimits()

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Rewrite a prepared model."""
        graph = DataflowGraph(model)
        groups = []
        for nodes in post_dominator_groups(graph, self._limits):
            completed = graph.completed(nodes)
            if (completed & graph.needs_kernel).bit_count() > 1:
                groups.append((SubGraph(graph, completed), Mark()))
        return PassResult(model, modified=mark_groups(graph, groups))


class FuseOpsByPattern(InPlacePass):
    """Replaces every match of some patterns by a function labelled with the pattern's name.

    Patterns are applied in order of priority: nodes matched by an earlier pattern are not available to later
    ones. Among the matches of one pattern, those nearest the end of the graph come first. A match is skipped if
    it holds a node that is marked already or part of a quantised operator, if the pattern's `check` refuses it,
    or if it would depend on its own result.

    Args:
        patterns: The patterns; those of equal priority are tried in the given order.
        toolchain: Toolchain that is to run the matches; empty to leave that open.
        bind_constants: Whether the constants of a match become part of its function. If not, they are its
            arguments, and all equal structures share one function.
    """

    def __init__(self, patterns: Sequence[FusionPattern], *, toolchain: str = "", bind_constants: bool = False) -> None:
        super().__init__()
        self._patterns = tuple(sorted(patterns, key=lambda pattern: -pattern.priority))
        self._mark = Mark(toolchain=toolchain, bind_constants=bind_constants)

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Rewrite a prepared model."""
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
