"""Every candidate proposed for one graph, with what its search needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol, TypeAlias

import onnx_ir

from collage_core.candidates.plan import PlannedCopy
from collage_core.candidates.refusals import Rejection
from collage_core.candidates.shared_values import shared_values
from collage_core.contract import INVALID, UNMEASURED, Cost, Target, Unmeasured
from collage_core.contract.device import HOST
from collage_core.fusion import CandidateKernel, SubGraph
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

CacheKey: TypeAlias = tuple[str, str]
"""Name of a target and key of a sub-graph: candidates of equal keys share their cost."""


class KnownCosts(Protocol):
    """What is known of candidates; `MeasuringCostSource` is one."""

    def key(self, sub_graph: SubGraph) -> str:
        """What makes a sub-graph the same as another to measure."""

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        """What a candidate costs, by fresh samples where there are some or by those it was selected by."""

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Why a candidate that was tried cannot be used; None if it can, or nobody tried."""


class CandidatePool:
    """Candidates by nodes, target and label, and the searches over them.

    Args:
        graph: The prepared model's graph.
        source: Knows what candidates cost.
        dispatch_us: What the runtime's loop adds to each kernel.
        copies: What copies between devices cost; None if they are not counted, as where there is one device.

    Attributes:
        confirmed: What is to be costed by fresh samples; everything else by those it was selected by. Only what
            this run confirmed is in it, so that a later run over the same database takes the same path.
        reached: What this run measured or looked up; nothing else has a cost, for the same reason. None if
            everything the source knows counts.
    """

    def __init__(
        self, graph: DataflowGraph, source: KnownCosts, dispatch_us: float, copies: CopyCosts | None = None
    ) -> None:
        self.graph = graph
        self.source = source
        self.dispatch_us = dispatch_us
        self.copy_costs = copies
        self.whole = graph.completed(graph.needs_kernel)
        self.confirmed: set[CacheKey] = set()
        self.reached: set[CacheKey] | None = None
        self._candidates: dict[tuple[int, str, str], CandidateKernel] = {}
        self._costs: dict[tuple[CacheKey, bool], Cost | Unmeasured] = {}

    def __iter__(self) -> Iterator[CandidateKernel]:
        return iter(self._candidates.values())

    def __len__(self) -> int:
        return len(self._candidates)

    def add(self, candidate: CandidateKernel) -> None:
        """Adds a candidate, unless an equal one is there."""
        key = (candidate.sub_graph.nodes, candidate.target.name, candidate.sub_graph.label)
        self._candidates.setdefault(key, candidate)

    def candidate(self, chosen: SearchCandidate) -> CandidateKernel:
        """What a search's candidate stands for."""
        return self._candidates[chosen.nodes, chosen.target, chosen.label]

    def cache_key(self, candidate: CandidateKernel) -> CacheKey:
        """What a candidate shares its cost with."""
        return candidate.measured_as.name, self.source.key(candidate.sub_graph)

    def searched(self, candidate: CandidateKernel) -> SearchCandidate:
        """A candidate as a search sees it; of two targets measured as one, the one it was measured as comes first."""
        name, key = self.cache_key(candidate)
        target, sub_graph = candidate.target.name, candidate.sub_graph
        return SearchCandidate(
            nodes=sub_graph.nodes, target=target, key=key, label=sub_graph.label, rank=int(name != target)
        )

    def distinct(self) -> int:
        """How many candidates there are to measure: structurally distinct ones of each target."""
        return len({self.cache_key(candidate) for candidate in self})

    def is_whole(self, candidate: CandidateKernel) -> bool:
        """Whether it covers everything that needs a kernel."""
        return candidate.sub_graph.nodes == self.whole

    def cost(self, candidate: CandidateKernel, *, confirmed: bool | None = None) -> Cost | Unmeasured:
        """What a candidate costs.

        Args:
            candidate: The candidate.
            confirmed: Whether to go by fresh samples; None to do so if this run confirmed it.
        """
        key = self.cache_key(candidate)
        if self.reached is not None and key not in self.reached:
            return UNMEASURED
        fresh = key in self.confirmed if confirmed is None else confirmed
        known = self._costs.get((key, fresh))
        if known is None:
            known = self._costs[key, fresh] = self.source.cost(candidate, confirmed=fresh)
        return known

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Why a candidate that was tried cannot be used; None if it can, or this run did not reach it."""
        # the empty set first: a key may need values of a run of the whole model, which may be what failed
        if self.reached is not None and (not self.reached or self.cache_key(candidate) not in self.reached):
            return None
        return self.source.rejection(candidate)

    def forget(self, candidate: CandidateKernel) -> None:
        """Asks for a candidate's cost anew: it was measured."""
        key = self.cache_key(candidate)
        for fresh in (False, True):
            self._costs.pop((key, fresh), None)

    def selected_us(self, candidate: CandidateKernel) -> float | None:
        """Cost by the samples it was selected by; None if it is unmeasured or unusable."""
        cost = self.cost(candidate, confirmed=False)
        return None if isinstance(cost, Unmeasured) or cost == INVALID else cost

    def problem(self, *, within: int | None = None, target: str | None = None) -> SearchProblem:
        """Everything that is here now, as the search sees it.

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
        return DeviceCopies(values=tuple(value for _, value in self._values), costs=self.copy_costs)

    @cached_property
    def _values(self) -> tuple[tuple[onnx_ir.Value, SharedValue], ...]:
        return shared_values(self.graph)

    def copies(self, kernels: Iterable[CandidateKernel]) -> tuple[PlannedCopy, ...]:
        """What a plan of these kernels, which cover every node, copies between devices."""
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
        names = [str(value.name) for value, _ in self._values]
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
        """Cost of a kernel for everything by the samples it was selected by, and of the copies of such a plan."""
        cost = self.selected_us(candidate)
        return None if cost is None else cost + sum(copy.cost_us for copy in self.copies([candidate]))

    def engine(self, *, within: int | None = None, target: str | None = None) -> ExactSearch:
        """A search over everything that is here now; see `problem`."""
        return ExactSearch(self.problem(within=within, target=target), PoolCosts(self))


class PoolCosts:
    """A pool's costs, as a search asks for them."""

    def __init__(self, pool: CandidatePool) -> None:
        self._pool = pool

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        """See `CostSource`."""
        return self._pool.cost(self._pool.candidate(candidate))
