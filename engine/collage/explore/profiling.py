"""Node times from a toolchain's own profile of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from collage.explore.exploration import Exploration
from collage_core.contract import Unsupported
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits

NodeTimes: TypeAlias = dict[int, float]
"""Microseconds by node of the graph."""


def node_times(
    exploration: Exploration, candidate: CandidateKernel, cost_us: float, work: Sequence[float]
) -> NodeTimes:
    """Return what each node of a kernel takes, by the toolchain's profile; empty if it has none.

    What a library runs for several nodes at once is shared by their estimated work. All is scaled to what the kernel
    takes when nobody profiles it.

    Args:
        exploration: Knows who measures.
        candidate: The kernel, measured.
        cost_us: What it takes, in microseconds.
        work: Estimated microseconds of each node, for shares.
    """
    profile = exploration.setup.source.profile(candidate)
    if isinstance(profile, Unsupported):
        return {}
    scale = cost_us / profile.attributed_us
    times: NodeTimes = dict.fromkeys(iterate_bits(candidate.sub_graph.nodes), 0.0)
    for part in profile.parts:
        nodes = [exploration.graph.index_of(name) for name in part.nodes]
        whole = sum(work[node] for node in nodes)
        for node in nodes:
            times[node] = part.time_us * scale * (work[node] / whole if whole else 1 / len(nodes))
    return times
