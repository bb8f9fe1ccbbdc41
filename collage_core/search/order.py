"""Determine the execution order of a plan's kernels."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from collage_core.errors import SearchError
from collage_core.ir.graph.masks import union_of
from collage_core.search.prepared import Shape
from collage_core.search.problem import bits


def execution_order(shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Return the positions of disjoint kernels in an order that respects their dependencies.

    Among the kernels ready to run, the one with the lowest node comes first.

    Raises:
        SearchError: If the dependencies form a cycle.
    """
    owner = {node: at for at, shape in enumerate(shapes) for node in bits(shape.kernels)}
    pending = union_of(shape.kernels for shape in shapes)
    waiting: dict[int, list[int]] = {}
    lowest = [shape.kernels & -shape.kernels for shape in shapes]
    ready: list[tuple[int, int]] = []

    def look(at: int) -> None:
        missing = shapes[at].before & pending
        if missing:  # look again when the last of what it waits for has run
            waiting.setdefault(owner[missing.bit_length() - 1], []).append(at)
        else:
            heapq.heappush(ready, (lowest[at], at))

    for at in range(len(shapes)):
        look(at)
    done: list[int] = []
    while ready:
        _, at = heapq.heappop(ready)
        done.append(at)
        pending &= ~shapes[at].kernels
        for other in waiting.pop(at, ()):
            look(other)
    if len(done) < len(shapes):
        raise SearchError(f"{len(shapes) - len(done)} kernels of the plan wait for each other in a circle")
    return tuple(done)
