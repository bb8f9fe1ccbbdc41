"""Kernels that targets proposed, to be found by what a plan file says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collage.control.kernel_parts import Shape, named_shape, shape_of
from collage.control.plan_file import Entry
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, UnionRule
from collage_core.ir.graph.dataflow import DataflowGraph


class KnownKernels:
    """Kernels that targets proposed.

    Args:
        source: Name of the spec of kernels that nobody proposed.
        graph: The graph.
        proposals: What targets proposed for it.
    """

    def __init__(self, source: str, graph: DataflowGraph, proposals: Iterable[Proposals]) -> None:
        self._source = source
        self._graph = graph
        self._specs: dict[str, FusionSpec] = {}
        self._known: dict[tuple[str, int, str], dict[Shape, CandidateKernel]] = {}
        for each in proposals:
            target = each.rule.target.name
            self._specs[target] = each.rule.spec
            for candidate in each.candidates:
                alike = self._known.setdefault((target, candidate.sub_graph.nodes, candidate.sub_graph.label), {})
                alike.setdefault(shape_of(graph, candidate.sub_graph.composites), candidate)

    def find(
        self, target: Target, nodes: int, entry: Entry, mask: Callable[[Iterable[str]], int]
    ) -> CandidateKernel | None:
        """Return the kernel that a target proposed; None if there is none.

        If the file does not say of which parts it is made, it is the one without any, or else the first with some.

        Args:
            target: The target.
            nodes: Mask of its nodes.
            entry: What the file says.
            mask: Returns the mask of nodes with some names.
        """
        alike = self._known.get((target.name, nodes, entry.composite), {})
        found = alike.get(named_shape(self._graph, entry.parts or (), mask))
        return next(iter(alike.values()), None) if found is None and entry.parts is None else found

    def spec(self, target: Target) -> FusionSpec:
        """Return the spec of a target's kernels that it did not propose itself."""
        return self._specs.get(target.name, self.given(target))

    def given(self, target: Target) -> FusionSpec:
        """Return the spec of kernels that are the user's own."""
        return FusionSpec(name=self._source, rule=UnionRule(()), targets=(target,))
