"""Choose where a graph is cut into runs: positions that few tensors cross, with the work balanced between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from collage_core.fusion.quantised import quantised_groups
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit
from collage_core.ir.graph.work import estimated_work_us
from collage_core.ir.values.tensor_spec import ValueKind

_MAX_PLACES = 512
"""Maximum number of positions considered; in larger graphs, the best position of each stretch of nodes."""

_CROSSING_WEIGHT = 0.05
"""Penalty of the worst crossing, as a fraction of an average segment's: just enough to break ties."""


def cut_positions(
    graph: DataflowGraph,
    limit: int,
    weights: Sequence[float] | None = None,
    *,
    max_live: int = 3,
    groups: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Choose positions in the topological order at which regions may begin and end.

    Position p lies before node p. Candidates are positions that at most `max_live` tensors cross, not counting graph
    inputs, and that split no group; a view counts as the tensor it shows. The chosen positions minimise the sum of
    squares of the segments' weights, which balances segments and isolates nodes that weigh more than the others.
    Near-ties prefer fewer and smaller crossing tensors, and avoid positions right before an epilogue.

    Args:
        graph: The graph.
        limit: Maximum number of positions.
        weights: Weight of each node; estimated from shapes by default.
        max_live: Maximum number of tensors that may cross a position.
        groups: Sets of nodes that stay on one side; None to find them by `quantised_groups`.

    Returns:
        At most `limit` positions, ascending, each in 1..len(graph)-1. Empty if there is none.
    """
    work = np.asarray(estimated_work_us(graph) if weights is None else weights, dtype=np.float64)
    crossing = _crossing(graph)
    inside = _inside(quantised_groups(graph) if groups is None else groups)
    places = [place for place in range(1, len(graph)) if crossing[place][0] <= max_live and not inside >> place & 1]
    places = _distinct(graph, places, crossing)
    if not places or limit < 1:
        return ()
    count = min(limit, len(places))
    largest = max(nbytes for _, nbytes in crossing) or 1
    average = float(work.sum()) / (count + 1)
    penalty = np.array(
        [
            (crossing[p][0] / max_live + crossing[p][1] / largest) / 2 + graph.kinds[_next_kernel(graph, p)].is_epilogue
            for p in places
        ]
    )
    penalty *= _CROSSING_WEIGHT * average**2
    before = np.concatenate([[0.0], np.cumsum(work)])
    ends = np.array([0, *places, len(graph)])
    totals = before[ends]
    squares = (totals[None, :] - totals[:, None]) ** 2  # [from, to]
    squares[np.tril_indices(len(ends))] = np.inf
    squares[:, 1:-1] += penalty[None, :]
    return _best(squares, ends, count)


def _inside(groups: Iterable[int]) -> int:
    """Return the mask of positions with nodes of one group on both sides."""
    mask = 0
    for group in groups:
        mask |= (1 << group.bit_length()) - ((group & -group) << 1)
    return mask


def _next_kernel(graph: DataflowGraph, place: int) -> int:
    after = graph.needs_kernel >> place << place
    return lowest_bit(after)


def _best(squares: np.ndarray[tuple[int, int], np.dtype[np.float64]], ends: np.ndarray, count: int) -> tuple[int, ...]:
    """Find the cheapest path from the first end to the last over at most `count` others, by dynamic programming."""
    last = len(ends) - 1
    costs = squares[0].copy()
    choices = []
    best, best_steps = costs[last], 0
    for step in range(1, count + 1):
        through = costs[:, None] + squares
        choice = through.argmin(axis=0)
        costs = through[choice, np.arange(len(ends))]
        choices.append(choice)
        if costs[last] < best:
            best, best_steps = costs[last], step
    chosen: list[int] = []
    place = last
    for choice in reversed(choices[:best_steps]):
        place = int(choice[place])
        chosen.append(int(ends[place]))
    return tuple(sorted(chosen))


def _crossing(graph: DataflowGraph) -> list[tuple[int, int]]:
    """Return the number and bytes of tensors that cross each position; unplanned ones count as a million bytes."""
    last_use: dict[int, int] = {}
    nbytes: dict[int, int] = {}
    tensor_of: dict[object, int] = {}
    size = len(graph)
    starts: list[list[int]] = [[] for _ in range(size + 1)]
    stops: list[list[int]] = [[] for _ in range(size + 1)]
    for index, node in enumerate(graph.nodes):
        for value in node.outputs:
            users = graph.users(value)
            until = users.bit_length() - 1 if users else -1
            if graph.is_host(index) and node.inputs[0] in tensor_of:
                tensor = tensor_of[node.inputs[0]]
            elif graph.is_host(index):  # a view of a graph input, which is there anyway
                continue
            else:
                tensor = len(nbytes)
                spec = graph.spec(value)
                nbytes[tensor] = 10**6 if spec.kind is ValueKind.FOREIGN else spec.nbytes
                starts[index + 1].append(tensor)
            tensor_of[value] = tensor
            last_use[tensor] = max(last_use.get(tensor, -1), until)
    for tensor, until in last_use.items():
        if until >= 0:
            stops[until + 1].append(tensor)
    result = []
    live: set[int] = set()
    for place in range(size + 1):
        live.update(tensor for tensor in starts[place] if last_use[tensor] >= place)
        live.difference_update(stops[place])
        result.append((len(live), sum(nbytes[tensor] for tensor in live)))
    return result


def _distinct(graph: DataflowGraph, places: list[int], crossing: list[tuple[int, int]]) -> list[int]:
    """Thin out positions: keep the cheapest of those separated only by views.

    If there are too many positions, the cheapest of each stretch of nodes is kept.
    """
    best: dict[int, int] = {}
    kernels = np.zeros(len(graph) + 1, dtype=np.int64)
    for index in iterate_bits(graph.needs_kernel):
        kernels[index + 1] = 1
    passed = np.cumsum(kernels)
    total = int(passed[-1])
    stretch = max(1, -(-total // _MAX_PLACES))
    for place in places:
        done = int(passed[place])
        if 0 < done < total:
            key = done // stretch
            if key not in best or crossing[place] < crossing[best[key]]:
                best[key] = place
    return sorted(best.values())
