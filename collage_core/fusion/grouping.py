"""Find the largest regions that one toolchain supports, around the nodes it refuses."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.fusion.coalesce import Units, coalesced
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit, union_of

_MAX_MERGED_REGIONS = 64
"""Above this number of regions neighbours are not merged: too much is refused for merging to matter."""


def maximal_regions(
    graph: DataflowGraph, supported: int, within: int | None = None, whole: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Group supported and refused nodes greedily so that the groups form no cycle.

    Each node gets the lowest level that is not below the levels of its predecessors: even levels for supported nodes,
    odd levels for refused nodes. Groups are the connected components of each level, so a value only flows to higher
    levels. Then supported groups are merged where that creates no cycle.

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
    return sorted(taken, key=lowest_bit), sorted(map(graph.completed, refused), key=lowest_bit)


def _levels(graph: DataflowGraph, supported: int, within: int, whole: Sequence[int]) -> dict[int, int]:
    """Compute the level of each node, in graph order; even levels are of supported nodes.

    Nodes that stay together are raised to the highest level among them until all such sets are level. The iteration
    terminates because such sets, as kernels, could run in sequence.
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
            around = union_of(
                graph.kernel_successors[index] | graph.kernel_predecessors[index] for index in iterate_bits(fresh)
            )
            fresh = around & nodes & ~part
            part |= fresh
        parts.append(part)
        nodes &= ~part
    return parts


def _merged(graph: DataflowGraph, taken: list[int], refused: list[int], supported: int, within: int) -> list[int]:
    if not 1 < len(taken) <= _MAX_MERGED_REGIONS:
        return taken
    barriers = graph.host_mask & within & ~supported

    def united(numbers: tuple[int, ...]) -> int:
        return graph.completed(union_of(taken[number] for number in numbers))

    merged = coalesced(Units(graph, [*taken, *refused]), range(len(taken)), lambda each: not united(each) & barriers)
    return [united(numbers) for numbers in merged]
