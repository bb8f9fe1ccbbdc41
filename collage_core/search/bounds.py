"""Compute a lower bound on the cost of every cover, from node prices that no candidate undercuts."""

from __future__ import annotations

from collections.abc import Iterable

from collage_core.search.problem import bits


def node_prices(candidates: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Compute node prices such that every candidate costs at least the sum of the prices of its nodes.

    So every cover costs at least the sum of all prices. The prices are a feasible point of the dual of the
    set-partitioning program: each node gets its cheapest equal share, then in turn what its candidates leave.

    Args:
        candidates: Mask of the nodes covered, not empty, and cost of each.

    Examples:
        >>> node_prices([(0b01, 6), (0b10, 9), (0b11, 8)])
        {0: 4, 1: 4}
    """
    members = [(list(bits(kernels)), cost) for kernels, cost in candidates]
    prices: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for index, (nodes, cost) in enumerate(members):
        share = cost // len(nodes)
        for node in nodes:
            prices[node] = min(prices.get(node, share), share)
            holders.setdefault(node, []).append(index)
    slack = [cost - sum(prices[node] for node in nodes) for nodes, cost in members]
    for node in sorted(prices):
        spare = min(slack[index] for index in holders[node])
        if spare:
            prices[node] += spare
            for index in holders[node]:
                slack[index] -= spare
    return dict(sorted(prices.items()))
