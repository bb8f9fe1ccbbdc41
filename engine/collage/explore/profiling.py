"""What toolchains' own profiles of kernels say of nodes, and what is believed because of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from collage.explore.exploration import Exploration
from collage.explore.measuring import is_operator
from collage_core.candidates.boundary import boundary_bytes
from collage_core.contract import Joins, Target, Unsupported
from collage_core.contract.device import HOST
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits
from collage_core.search import GUESSED, KERNEL_US, PROFILED, Beliefs, Joint, TargetBelief

NodeTimes: TypeAlias = dict[int, float]
"""Microseconds by node of the graph."""

_OWN = 0.5
"""Least share of a kernel of one operator that is the operator's own time."""
_GAINED = 0.1
"""Share of the smaller of two neighbours that they are believed to gain by being in one kernel."""
_CHANGE, _FUSED, _LAYOUT_US_PER_BYTE = 0.5, 0.1, 1e-4
"""Doubt of what changes between neighbours: a share of what either takes more or less inside than alone, a share of the
smaller of the two where they may be fused, and what a byte of the tensor between them may take whose layout changes.
"""
_SPARED_US_PER_BYTE = 2e-4
"""Doubt of what changes where a compiler joins neighbours, per byte of the tensor between them: it need not be written
and read. So much it takes at 10 GB/s in each direction. 150 classes upsampled to 512x512 and reduced to the largest,
157 MB between, took 56 ms as two kernels of Halide on two cores, and 27 ms as one with the convolution before them.
"""


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


def profiles_of(
    exploration: Exploration, candidates: Iterable[CandidateKernel], work: Sequence[float]
) -> dict[str, NodeTimes]:
    """Return what nodes take inside measured kernels, by target; targets without a profile are left out.

    Args:
        exploration: Knows costs, and who measures.
        candidates: Measured kernels of several operators.
        work: Estimated microseconds of each node.
    """
    profiles: dict[str, NodeTimes] = {}
    for candidate in candidates:
        cost = exploration.pool.selected_us(candidate)
        if cost is None or not candidate.target.mixable or is_operator(exploration, candidate):
            continue
        if times := node_times(exploration, candidate, cost, work):
            profiles.setdefault(candidate.target.name, {}).update(times)
    return profiles


def first_beliefs(
    exploration: Exploration,
    profiles: Mapping[str, NodeTimes],
    alone: Mapping[str, Mapping[int, float]],
    work: Sequence[float],
    kinds: Sequence[str],
) -> Beliefs:
    """Return what to believe before anything is learnt.

    A target without a profile is believed to take what the fastest profiled target does.

    Args:
        exploration: Knows the targets and the graph.
        profiles: At least one.
        alone: What single operators take alone, in microseconds, by target and mask of nodes.
        work: Estimated microseconds of each node.
        kinds: Kind of work of each node.
    """
    needs_kernel = exploration.graph.needs_kernel
    filled = {name: _filled(times, work, kinds) for name, times in profiles.items()}
    fastest = [min(times) for times in zip(*filled.values(), strict=True)]
    targets: dict[str, TargetBelief] = {}
    for seed, rule in enumerate(exploration.setup.rules):
        name = rule.target.name
        if name not in profiles:
            joints = spared(exploration, rule.target)
            targets[name] = TargetBelief(fastest, kinds, [GUESSED] * len(work), joints, seed=seed)
            continue
        by_itself = {
            (nodes & needs_kernel).bit_length() - 1: max(_OWN * cost, cost - KERNEL_US)
            for nodes, cost in alone.get(name, {}).items()
        }
        doubts = [PROFILED if node in profiles[name] else GUESSED for node in range(len(work))]
        times, joints = _apart(exploration, filled[name], by_itself)
        targets[name] = TargetBelief(times, kinds, doubts, joints, seed=seed)
    return Beliefs(targets, boundary_bytes(exploration.pool.values))


def spared(exploration: Exploration, target: Target) -> list[Joint]:
    """Return what may change where a compiler without a profile joins neighbours; nothing of a device.

    Args:
        exploration: Knows the graph.
        target: The target.
    """
    if target.device != HOST or target.joins is not Joins.NATIVE:
        return []
    graph = exploration.graph
    sizes = {value.producer: float(value.size_bytes or 0) for value in exploration.pool.values}
    return [
        Joint(nodes=(node, after), change_us=0.0, doubt_us=_SPARED_US_PER_BYTE * sizes.get(node, 0.0))
        for node in iterate_bits(graph.needs_kernel)
        for after in iterate_bits(graph.kernel_successors[node])
    ]


def _apart(
    exploration: Exploration, inside: Sequence[float], alone: Mapping[int, float]
) -> tuple[list[float], list[Joint]]:
    """Return what each node is believed to take by itself, and what changes where neighbours are in one kernel.

    What a node takes more or less inside the profiled kernel than alone is put down to what computes its inputs, and
    where nothing does, to what reads its outputs. Of nodes that were not measured alone, neighbours gain something. Two
    that read the same value may share what changes its layout.

    Args:
        exploration: Knows the graph.
        inside: What each node takes inside, in microseconds.
        alone: What nodes take alone.
    """
    graph = exploration.graph
    sizes = {value.producer: float(value.size_bytes or 0) for value in exploration.pool.values}
    times = [alone.get(node, time) for node, time in enumerate(inside)]
    changes: dict[tuple[int, int], float] = {}
    either: dict[tuple[int, int], float] = {}
    between: dict[tuple[int, int], float] = {}  # bytes whose layout may change
    for node in iterate_bits(graph.needs_kernel):
        more = inside[node] - alone.get(node, inside[node])
        before = [(each, node) for each in iterate_bits(graph.kernel_predecessors[node])]
        after = [(node, each) for each in iterate_bits(graph.kernel_successors[node])]
        for pair in (*before, *after):
            changes.setdefault(pair, 0.0)
            either[pair] = max(either.get(pair, 0.0), abs(more))  # it may as well be for the neighbour after it
            if node not in alone:
                gained = _GAINED / 2 * min(inside[pair[0]], inside[pair[1]])
                changes[pair] -= gained
                times[node] += gained
        for pair in before or after:
            changes[pair] += more / len(before or after)
        between.update({pair: sizes.get(node, 0.0) for pair in after})
    for node in iterate_bits(graph.needs_kernel):
        for pair in itertools.pairwise(iterate_bits(graph.kernel_successors[node])):
            between[pair] = between.get(pair, 0.0) + sizes.get(node, 0.0)
    joints = []
    for (one, other), nbytes in between.items():
        fused, layout = _FUSED * min(inside[one], inside[other]), _LAYOUT_US_PER_BYTE * nbytes
        doubt = math.hypot(_CHANGE * either.get((one, other), 0.0), fused, layout)
        joints.append(Joint(nodes=(one, other), change_us=changes.get((one, other), 0.0), doubt_us=doubt))
    return times, joints


def _filled(times: NodeTimes, work: Sequence[float], kinds: Sequence[str]) -> list[float]:
    """Return the time of every node: of those without one, from others of its kind, or from all."""
    by_kind: dict[str, tuple[float, float]] = {}
    for node, time in times.items():
        known = by_kind.get(kinds[node], (0.0, 0.0))
        by_kind[kinds[node]] = known[0] + time, known[1] + work[node]
    total, done = (sum(column) for column in zip(*by_kind.values(), strict=True))
    usual = total / done if done else 1.0
    return [
        times[node] if node in times else each * _ratio(by_kind.get(kinds[node]), usual)
        for node, each in enumerate(work)
    ]


def _ratio(known: tuple[float, float] | None, usual: float) -> float:
    return known[0] / known[1] if known is not None and known[1] else usual
