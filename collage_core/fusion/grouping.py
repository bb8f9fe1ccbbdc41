"""The largest regions one toolchain can take, around what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.ir.dataflow import DataflowGraph
from collage_core.ir.index_set import iterate_bits

_MAX_MERGED_REGIONS = 64
"""With more regions than this, neighbours are not merged: the toolchain refuses too much for it to matter."""


def maximal_regions(
    graph: DataflowGraph, supported: int, within: int | None = None, whole: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Greedily groups supported and refused nodes so that all groups together have no cycle.

    Nodes get levels: as low as possible, never lower than what they read, even for supported and odd for refused
    nodes. Groups are the connected parts of each level, so a value only flows to higher levels. Then supported groups
    are merged where that closes no circle.

    Args:
        graph: The graph.
        supported: Mask of the nodes the toolchain takes; views it refuses are barriers too.
        within: A convex set to group; everything by default.
        whole: Sets of nodes that stay together, each supported or refused as a whole, and inside `within` or outside;
            see `quantised_groups`.

    Returns:
        The supported groups and the refused ones, each in order of their lowest node, with the views between their
        nodes.
    """
    within = graph.all_mask if within is None else within
    if not graph.needs_kernel & within & ~supported and not graph.host_mask & within & ~supported:
        everything = graph.completed(within)
        return ([everything] if everything else []), []
    by_level: dict[int, int] = {}
    for index, level in _levels(graph, supported, within, whole).items():
        if not graph.is_host(index):
            by_level[level] = by_level.get(level, 0) | 1 << index
    taken: list[int] = []
    refused: list[int] = []
    for level, nodes in sorted(by_level.items()):
        (refused if level % 2 else taken).extend(_connected(graph, nodes))
    taken = [graph.completed(nodes) for nodes in _merged(graph, taken, refused, supported, within)]
    return sorted(taken, key=_lowest), sorted(map(graph.completed, refused), key=_lowest)


def _levels(graph: DataflowGraph, supported: int, within: int, whole: Sequence[int]) -> dict[int, int]:
    """By node, in order; even ones are of supported nodes.

    What stays together is lifted to its highest node until all is. That ends, because such sets, as kernels, could run
    one after the other.
    """
    least: dict[int, int] = {}
    while True:
        levels: dict[int, int] = {}
        for index in iterate_bits(within):
            level = max((levels[before] for before in iterate_bits(graph.predecessors[index] & within)), default=0)
            takes = supported >> index & 1
            if not (takes and graph.is_host(index)):
                level += level % 2 == takes
            levels[index] = max(level, least.get(index, 0))
        lifted = False
        for group in whole:
            inside = [levels[index] for index in iterate_bits(group & within)]
            if inside and min(inside) < max(inside):
                least.update(dict.fromkeys(iterate_bits(group & within), max(inside)))
                lifted = True
        if not lifted:
            return levels


def _connected(graph: DataflowGraph, nodes: int) -> list[int]:
    parts = []
    while nodes:
        part = fresh = nodes & -nodes
        while fresh:
            around = 0
            for index in iterate_bits(fresh):
                around |= graph.kernel_successors[index] | graph.kernel_predecessors[index]
            fresh = around & nodes & ~part
            part |= fresh
        parts.append(part)
        nodes &= ~part
    return parts


def _merged(graph: DataflowGraph, taken: list[int], refused: list[int], supported: int, within: int) -> list[int]:
    if not 1 < len(taken) <= _MAX_MERGED_REGIONS:
        return taken
    groups = list(taken)
    barriers = graph.host_mask & within & ~supported
    merged = True
    while merged:
        merged = False
        for first in range(len(groups)):
            for second in range(first + 1, len(groups)):
                union = groups[first] | groups[second]
                if not _touch(graph, groups[first], groups[second]) or graph.completed(union) & barriers:
                    continue
                rest = [group for number, group in enumerate(groups) if number not in (first, second)]
                if graph.is_convex(graph.completed(union)) and _is_acyclic(graph, [union, *rest, *refused]):
                    groups = [union, *rest]
                    merged = True
                    break
            if merged:
                break
    return groups


def _touch(graph: DataflowGraph, left: int, right: int) -> bool:
    return any(
        (graph.kernel_successors[index] | graph.kernel_predecessors[index]) & right for index in iterate_bits(left)
    )


def _is_acyclic(graph: DataflowGraph, groups: list[int]) -> bool:
    """Whether groups of kernel nodes can run one after the other."""
    after = []
    for group in groups:
        mask = 0
        for index in iterate_bits(group):
            mask |= graph.kernel_successors[index]
        after.append(mask & ~group)
    left = set(range(len(groups)))
    while left:
        read = 0
        for number in left:
            read |= after[number]
        free = {number for number in left if not groups[number] & read}
        if not free:
            return False
        left -= free
    return True


def _lowest(nodes: int) -> int:
    return (nodes & -nodes).bit_length() - 1
