"""The part of a cost source that a candidate pool queries, answered by mock toolchains."""

from __future__ import annotations

from collections.abc import Mapping

from collage_core.candidates.refusals import Rejection
from collage_core.contract import INVALID, Cost, KernelProfile, Unsupported, checked_cost
from collage_core.fusion import CandidateKernel, SubGraph
from collage_testing.mock import MockToolchain


class MockCosts:
    """Costs as mock toolchains say.

    Args:
        mocks: The toolchains, by name.
    """

    def __init__(self, mocks: Mapping[str, MockToolchain]) -> None:
        self._mocks = mocks

    def key(self, sub_graph: SubGraph) -> str:
        """Return a key that is equal for the same nodes only: a mock's cost may depend on names."""
        return f"{sub_graph.nodes:x} {sub_graph.label}"

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = False) -> Cost:
        """Return what the mock says; `INVALID` if it refuses."""
        answer = self._mocks[candidate.target.toolchain].cost(candidate)
        return INVALID if isinstance(answer, Unsupported) else checked_cost(answer)

    def profile(self, candidate: CandidateKernel) -> KernelProfile | Unsupported:
        """Return the mock's profile."""
        return self._mocks[candidate.target.toolchain].profile(candidate)

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Return why a candidate has no cost; None if it has one."""
        answer = self._mocks[candidate.target.toolchain].cost(candidate)
        if isinstance(answer, Unsupported):
            return Rejection(stage="lower", reason=answer.reason)
        return Rejection(stage="lower", reason="its cost is INVALID") if answer == INVALID else None
