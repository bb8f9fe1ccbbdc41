"""Cycles between kernels that have several outputs: decision 4 of docs/design, rules a to c.

A kernel that is *tangled* (`Shape.tangled`) ties everything before it to everything after it, although no path
in the graph need connect the two. For each such kernel in a partial plan a pair is kept:

    (before, after): the uncovered nodes from which it can be reached, and those it reaches,

through the graph and through the kernels chosen so far. A further kernel may not touch both sides of a pair: it
would have to run both before and after that kernel. Kernels that are not tangled need no pair, but they connect
pairs with each other and with the rest of the graph. A pair with an empty side can never be violated, and a pair
within another is implied by it; both are dropped, which keeps states few.
"""

from __future__ import annotations

from collage_core.search.prepared import Shape

Pair = tuple[int, int]
Pairs = tuple[Pair, ...]


def advance(pairs: Pairs, shape: Shape, uncovered: int) -> Pairs | None:
    """Update the pairs after a kernel joins a partial plan.

    Args:
        pairs: The pairs of the partial plan.
        shape: The kernel.
        uncovered: Nodes still uncovered once the kernel has joined, and all host nodes.

    Returns:
        The new pairs in canonical order, or None if the kernel closes a cycle.
    """
    before, after = shape.before, shape.after
    for pair_before, pair_after in pairs:
        runs_before = shape.kernels & pair_before
        runs_after = shape.touched & pair_after
        if runs_before:
            if runs_after:
                return None
            after |= pair_after
        elif runs_after:
            before |= pair_before
    updated: set[Pair] = set()
    for pair_before, pair_after in pairs:
        if shape.kernels & pair_before:
            pair_before |= before
        elif shape.touched & pair_after:
            pair_after |= after
        pair_before &= uncovered
        pair_after &= uncovered
        if pair_before and pair_after:
            updated.add((pair_before, pair_after))
    if shape.tangled:
        before &= uncovered
        after &= uncovered
        if before and after:
            updated.add((before, after))
    if len(updated) < 2:
        return tuple(updated)
    return tuple(sorted(pair for pair in updated if not _implied(pair, updated)))


def _implied(pair: Pair, pairs: set[Pair]) -> bool:
    before, after = pair
    return any(not before & ~other[0] and not after & ~other[1] for other in pairs if other != pair)
