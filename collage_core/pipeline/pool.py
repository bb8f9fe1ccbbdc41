"""Every candidate proposed for one graph, with what its search needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from collage_core.contract import INVALID, Target, Unmeasured
from collage_core.fusion import CandidateKernel
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.source import CacheKey, MeasuringCostSource
from collage_core.search import CostTable, ExactSearch, SearchCandidate, SearchProblem, SearchTarget


class CandidatePool:
    """Candidates by nodes, target and label, and the searches over them.

    Args:
        graph: The prepared model's graph.
        source: Knows what candidates cost.
        dispatch_us: What the runtime's loop adds to each kernel.

    Attributes:
        confirmed: What is to be costed by fresh samples; everything else by those it was selected by. Only what
            this run confirmed is in it, so that a later run over the same database takes the same path.
    """

    def __init__(self, graph: DataflowGraph, source: MeasuringCostSource, dispatch_us: float) -> None:
        self.graph = graph
        self.source = source
        self.dispatch_us = dispatch_us
        self.whole = graph.completed(graph.needs_kernel)
        self.confirmed: set[CacheKey] = set()
        self._candidates: dict[tuple[int, str, str], CandidateKernel] = {}

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
        return candidate.target.name, self.source.key(candidate.sub_graph)

    def distinct(self) -> int:
        """How many candidates there are to measure: structurally distinct ones of each target."""
        return len({self.cache_key(candidate) for candidate in self})

    def is_whole(self, candidate: CandidateKernel) -> bool:
        """Whether it covers everything that needs a kernel."""
        return candidate.sub_graph.nodes == self.whole

    def selected_us(self, candidate: CandidateKernel) -> float | None:
        """Cost by the samples it was selected by; None if it is unmeasured or unusable."""
        cost = self.source.cost(candidate, confirmed=False)
        return None if isinstance(cost, Unmeasured) or cost == INVALID else cost

    def engine(self, without: Collection[CacheKey] = ()) -> ExactSearch:
        """A search over everything that is here now.

        Args:
            without: Candidates to leave out, by what they share their costs with.
        """
        graph = self.graph
        table: dict[CacheKey, float] = {}
        candidates = []
        targets: dict[str, Target] = {}
        for candidate in self:
            key = self.cache_key(candidate)
            if key in without:
                continue
            targets[candidate.target.name] = candidate.target
            candidates.append(
                SearchCandidate(
                    nodes=candidate.sub_graph.nodes,
                    target=candidate.target.name,
                    key=key[1],
                    label=candidate.sub_graph.label,
                )
            )
            if key not in table:
                cost = self.source.cost(candidate, confirmed=key in self.confirmed)
                if not isinstance(cost, Unmeasured):
                    table[key] = cost
        problem = SearchProblem(
            node_count=len(graph),
            needs_kernel=graph.needs_kernel,
            ancestors=graph.ancestors,
            descendants=graph.descendants,
            targets=tuple(SearchTarget.of(target, self.dispatch_us) for _, target in sorted(targets.items())),
            candidates=tuple(candidates),
        )
        return ExactSearch(problem, CostTable(table))
