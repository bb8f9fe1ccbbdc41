"""Candidates proposed for one graph, with the data their search needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import onnx_ir

from collage_core.candidates.costs import CacheKey, Costs
from collage_core.candidates.plan import PlannedCopy
from collage_core.candidates.refusals import Rejection
from collage_core.candidates.shared_values import shared_values
from collage_core.contract import INVALID, Cost, Target, Unmeasured
from collage_core.contract.device import HOST
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import (
    CopyCosts,
    DeviceCopies,
    ExactSearch,
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    SharedValue,
    copies_of,
)

_Key = tuple[int, str, str]


class _GraphFacts:
    """What all pools over one graph share, computed when first asked for."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph

    @cached_property
    def whole(self) -> int:
        return self._graph.completed(self._graph.needs_kernel)

    @cached_property
    def values(self) -> tuple[tuple[onnx_ir.Value, SharedValue], ...]:
        return shared_values(self._graph)


@dataclasses.dataclass(frozen=True, eq=False)
class CandidatePool:
    """Candidates by nodes, target and form, what they cost, and the searches over them.

    A pool does not change: `with_candidates` and `with_costs` return the next one.

    Attributes:
        graph: The prepared model's graph.
        costs: What is known of what candidates cost.
        dispatch_us: What the runtime's loop adds to each kernel.
        copy_costs: What copies between devices cost; None if they are not counted, as where there is one device.
    """

    graph: DataflowGraph
    costs: Costs
    dispatch_us: float
    copy_costs: CopyCosts | None = None
    _candidates: Mapping[_Key, CandidateKernel] = dataclasses.field(default_factory=dict, repr=False)
    _facts: _GraphFacts = dataclasses.field(default=None, repr=False)  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self._facts is None:
            object.__setattr__(self, "_facts", _GraphFacts(self.graph))

    def __iter__(self) -> Iterator[CandidateKernel]:
        return iter(self._candidates.values())

    def __len__(self) -> int:
        return len(self._candidates)

    def with_candidates(self, candidates: Iterable[CandidateKernel]) -> CandidatePool:
        """Return the pool with these besides, each unless an equal one is there."""
        fresh: dict[_Key, CandidateKernel] = {}
        for candidate in candidates:
            key = (candidate.sub_graph.nodes, candidate.target.name, candidate.sub_graph.form)
            if key not in self._candidates:
                fresh.setdefault(key, candidate)
        return dataclasses.replace(self, _candidates={**self._candidates, **fresh}) if fresh else self

    def with_costs(self, costs: Costs) -> CandidatePool:
        """Return the pool of the same candidates with other costs."""
        return dataclasses.replace(self, costs=costs)

    @property
    def whole(self) -> int:
        """Mask of everything that needs a kernel, with the views between."""
        return self._facts.whole

    @property
    def values(self) -> tuple[SharedValue, ...]:
        """Values of the graph that occupy memory: graph inputs and what kernels compute."""
        return tuple(value for _, value in self._facts.values)

    def candidate(self, chosen: SearchCandidate) -> CandidateKernel:
        """Return what a search's candidate stands for."""
        return self._candidates[chosen.nodes, chosen.target, chosen.label]

    def cache_key(self, candidate: CandidateKernel) -> CacheKey:
        """Return what a candidate shares its cost with."""
        return self.costs.key(candidate)

    def searched(self, candidate: CandidateKernel) -> SearchCandidate:
        """Return a candidate as a search sees it; of two targets measured as one, that one comes first."""
        name, key = self.cache_key(candidate)
        target, sub_graph = candidate.target.name, candidate.sub_graph
        return SearchCandidate(
            nodes=sub_graph.nodes, target=target, key=key, label=sub_graph.form, rank=int(name != target)
        )

    def distinct(self) -> int:
        """Count the candidates there are to measure: structurally distinct ones of each target."""
        return len({self.cache_key(candidate) for candidate in self})

    def unmeasured(self) -> int:
        """Count those of them that have no cost."""
        return len({self.cache_key(each) for each in self if isinstance(self.cost(each), Unmeasured)})

    def is_whole(self, candidate: CandidateKernel) -> bool:
        """Return whether a candidate covers everything that needs a kernel."""
        return candidate.sub_graph.nodes == self.whole

    def cost(self, candidate: CandidateKernel, *, confirmed: bool | None = None) -> Cost | Unmeasured:
        """Return what a candidate costs; see `Costs.cost`."""
        return self.costs.cost(candidate, confirmed=confirmed)

    def cost_us(self, candidate: CandidateKernel) -> float | None:
        """Return what a candidate costs; None if it is unmeasured or unusable."""
        cost = self.cost(candidate)
        return None if isinstance(cost, Unmeasured) or cost == INVALID else cost

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Return why a candidate that was tried cannot be used; None if it can, or this run did not reach it."""
        return self.costs.rejection(candidate)

    def selected_us(self, candidate: CandidateKernel) -> float | None:
        """Return the cost by the samples a candidate was selected by; None if it is unmeasured or unusable."""
        return self.costs.selected_us(candidate)

    def problem(self, *, within: int | None = None, target: str | None = None) -> SearchProblem:
        """Return everything that is here, as the search sees it.

        Args:
            within: Cover these nodes only, with candidates inside them; all nodes if None.
            target: Use this target only; all if None.

        Copies between devices are counted where all nodes are to be covered.
        """
        graph = self.graph
        inside = graph.all_mask if within is None else within
        candidates = []
        targets: dict[str, Target] = {}
        for candidate in self:
            nodes = candidate.sub_graph.nodes
            if nodes & ~inside or target not in (None, candidate.target.name):
                continue
            targets[candidate.target.name] = candidate.target
            candidates.append(self.searched(candidate))
        return SearchProblem(
            node_count=len(graph),
            needs_kernel=graph.needs_kernel & inside,
            ancestors=graph.ancestors,
            descendants=graph.descendants,
            targets=tuple(SearchTarget.of(each, self.dispatch_us) for _, each in sorted(targets.items())),
            candidates=tuple(candidates),
            copies=self._copies(targets.values()) if within is None else None,
        )

    def _copies(self, targets: Iterable[Target]) -> DeviceCopies | None:
        if self.copy_costs is None or all(target.device == HOST for target in targets):
            return None
        return DeviceCopies(values=tuple(value for _, value in self._facts.values), costs=self.copy_costs)

    def copies(self, kernels: Iterable[CandidateKernel]) -> tuple[PlannedCopy, ...]:
        """Return what a plan of these kernels, which cover every node, copies between devices."""
        chosen = list(kernels)
        copies = self._copies(kernel.target for kernel in chosen)
        if copies is None:
            return ()
        targets = {kernel.target.name: kernel.target for kernel in chosen}
        problem = SearchProblem(
            node_count=len(self.graph),
            needs_kernel=self.graph.needs_kernel,
            ancestors=self.graph.ancestors,
            descendants=self.graph.descendants,
            targets=tuple(map(SearchTarget.of, targets.values())),
            candidates=tuple(
                SearchCandidate(nodes=kernel.sub_graph.nodes, target=kernel.target.name, key="") for kernel in chosen
            ),
            copies=copies,
        )
        names = [str(value.name) for value, _ in self._facts.values]
        return tuple(
            PlannedCopy(
                value=names[copy.value],
                source=copy.source,
                destination=copy.destination,
                size_bytes=copies.values[copy.value].size_bytes,
                cost_us=copy.cost_us,
            )
            for copy in copies_of(problem)
        )

    def alone_us(self, candidate: CandidateKernel) -> float | None:
        """Return the cost of a kernel for everything by the samples it was selected by, and of such a plan's copies."""
        cost = self.selected_us(candidate)
        return None if cost is None else cost + sum(copy.cost_us for copy in self.copies([candidate]))

    def engine(self, *, within: int | None = None, target: str | None = None) -> ExactSearch:
        """Return a search over everything that is here; see `problem`."""
        return ExactSearch(self.problem(within=within, target=target), PoolCosts(self))


class PoolCosts:
    """Cost source for a search, backed by a candidate pool."""

    def __init__(self, pool: CandidatePool) -> None:
        self._pool = pool

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        """See `CostSource`."""
        return self._pool.costs.cost(self._pool.candidate(candidate))
