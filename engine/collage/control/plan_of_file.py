"""A plan file over the graph of a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from collage.control.known_kernels import KnownKernels
from collage.control.plan_file import Entry, PlanFile
from collage.errors import PlanFileError
from collage_core.candidates.plan import Plan
from collage_core.candidates.priced import priced_pool
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Target
from collage_core.errors import NoCoverError, PartitioningError, did_you_mean
from collage_core.fusion import CandidateKernel, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product, quantisable
from collage_core.search import CopyCosts, SearchTarget


def planned(
    file: PlanFile,
    graph: DataflowGraph,
    targets: Sequence[Target],
    proposals: Iterable[Proposals] = (),
    *,
    dispatch_us: float = 0.0,
    copies: CopyCosts | None = None,
) -> Plan:
    """Return the plan a file asks for, over the graph of a model.

    A kernel that its target proposed, too, has the parts and attributes of that candidate; any other is taken as it
    is, and whether it can be built is for its toolchain to say.

    Args:
        file: The file.
        graph: The prepared model's graph.
        targets: Those that take part.
        proposals: What they proposed.
        dispatch_us: What the runtime's loop adds to each kernel.
        copies: What copies between devices cost; None if they are not counted.

    Raises:
        PlanFileError: If an entry names an unknown node or target; if kernels overlap, leave out a node, or wait for
            each other; if its targets cannot share a plan; or if no set of the candidates of `costs` covers the graph.
    """
    reader = _Reader(file, graph, targets, proposals)
    if file.kernels is None:
        kernels, costs_us = reader.cheapest(dispatch_us, copies)
    else:
        found = [reader.candidate(entry) for entry in file.kernels]
        both = [(kernel, entry.cost_us or 0.0) for kernel, entry in zip(found, file.kernels, strict=True) if kernel]
        kernels, costs_us = tuple(kernel for kernel, _ in both), tuple(cost for _, cost in both)
    try:
        partitioning = Partitioning(graph, kernels)
    except PartitioningError as error:
        raise PlanFileError(file.source, str(error)) from error
    used = {kernel.target.name: SearchTarget.of(kernel.target) for kernel in kernels}
    for (one, first), (other, second) in itertools.combinations(sorted(used.items()), 2):
        if not first.mixes_with(second):
            raise PlanFileError(file.source, f"{one} and {other} cannot share a plan")
    return Plan(
        name=Path(file.source).stem,
        single=len(used) == 1,
        partitioning=partitioning,
        costs_us=costs_us,
        dispatch_us=dispatch_us,
    )


class _Reader:
    """Converts the entries of a plan file to candidates over one graph."""

    def __init__(
        self, file: PlanFile, graph: DataflowGraph, targets: Sequence[Target], proposals: Iterable[Proposals]
    ) -> None:
        self._file = file
        self._graph = graph
        self._targets = {target.name: target for target in targets}
        self._known = KnownKernels(file.source, graph, proposals)

    def candidate(self, entry: Entry) -> CandidateKernel | None:
        """Return an entry as a candidate; None if it has views only."""
        graph = self._graph
        target = self._targets.get(entry.target)
        if target is None:
            names = ", ".join(self._targets) or "none"
            raise self._error(f"target {entry.target!r} takes no part here; those that do: {names}")
        nodes = graph.completed(self._nodes(entry.nodes))
        if not nodes:
            return None
        if entry.int8 or target.quantises:
            return CandidateKernel(self._quantised(entry, target, nodes), self._known.given(target), target)
        known = self._known.find(target, nodes, entry, self._nodes)
        if known is not None:
            return known
        if entry.composite or entry.parts:
            made = entry.composite or " and ".join(part.composite for part in entry.parts or ())
            raise self._error(f"{target.name} has no kernel {made!r} of {', '.join(entry.nodes[:3])}")
        return CandidateKernel(SubGraph(graph, nodes), self._known.spec(target), target)

    def _nodes(self, names: Iterable[str]) -> int:
        """Return nodes by name, as a mask."""
        graph, nodes = self._graph, 0
        for name in names:
            try:
                nodes |= 1 << graph.index_of(name)
            except KeyError:
                raise self._error(
                    f"the model has no node {name!r}{did_you_mean(name, graph.names)}. Names are those of the prepared "
                    "model, as --save-plan and `collage explain` give them"
                ) from None
        return nodes

    def _quantised(self, entry: Entry, target: Target, nodes: int) -> SubGraph:
        """Return a sub-graph of which some products are quantised."""
        graph = self._graph
        if not target.quantises:
            raise self._error(f"{target.name} quantises nothing; an entry with int8 needs a target with precision=int8")
        products = []
        for name, span in entry.int8.items():
            if name not in entry.nodes or quantisable(graph.nodes[graph.index_of(name)]) is None:
                raise self._error(
                    f"{name!r} cannot be in int8: it is not one of the kernel's nodes, or no product of a float32 "
                    "activation and a constant weight"
                )
            if (span is None) != target.quantises_only_weights:
                given = "a range of its activation" if target.quantises_only_weights else "no range, but null"
                raise self._error(f"{name!r} has {given}, which {target.name} does not take")
            span = None if span is None else span.in_form(symmetric=target.symmetric)
            products.append(Int8Product(graph.index_of(name), span))
        return SubGraph(graph, nodes, int8=tuple(sorted(products)))

    def cheapest(
        self, dispatch_us: float, copies: CopyCosts | None
    ) -> tuple[tuple[CandidateKernel, ...], tuple[float, ...]]:
        """Return the cheapest cover by the candidates of `costs`, and what each costs."""
        priced = [
            (candidate, entry.cost_us)
            for entry in self._file.costs
            if entry.cost_us is not None and (candidate := self.candidate(entry)) is not None
        ]
        pool = priced_pool(self._graph, priced, dispatch_us, copies)
        try:
            result = pool.engine().run()
        except NoCoverError as error:
            names = ", ".join(repr(self._graph.names[index]) for index in error.nodes[:5])
            raise self._error(f"no set of the candidates in its costs runs {names}") from error
        return tuple(pool.candidate(chosen) for chosen in result.candidates), result.costs_us

    def _error(self, reason: str) -> PlanFileError:
        return PlanFileError(self._file.source, reason)
