"""Pools of candidates whose costs are given, so that nothing is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collage_core.candidates.costs import Costs
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Cost, Unmeasured
from collage_core.fusion import CandidateKernel, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import CopyCosts

_Place = tuple[str, int, str]


def priced_pool(
    graph: DataflowGraph,
    priced: Iterable[tuple[CandidateKernel, Cost]],
    dispatch_us: float = 0.0,
    copies: CopyCosts | None = None,
) -> CandidatePool:
    """Return a pool of candidates with these costs.

    Args:
        graph: The graph.
        priced: Candidates with their costs in microseconds, each of one place, not of all that are alike; of two for
            one place the last counts.
        dispatch_us: What the runtime's loop adds to each kernel.
        copies: What copies between devices cost; None if they are not counted.
    """
    given = [*priced]
    costs = Costs(_Priced({_place(candidate): cost for candidate, cost in given}))
    return CandidatePool(graph, costs, dispatch_us, copies).with_candidates(candidate for candidate, _ in given)


def _place(candidate: CandidateKernel) -> _Place:
    return candidate.target.name, candidate.sub_graph.nodes, candidate.sub_graph.form


class _Priced:
    """See `KnownCosts`."""

    def __init__(self, costs: Mapping[_Place, Cost]) -> None:
        self._costs = costs

    def key(self, sub_graph: SubGraph) -> str:
        return f"{sub_graph.nodes:x} {sub_graph.form}"

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        return self._costs[_place(candidate)]

    def rejection(self, candidate: CandidateKernel) -> None:
        return
