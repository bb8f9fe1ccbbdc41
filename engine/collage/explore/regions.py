"""Which regions the lazy search may ask for."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from collage.explore.exploration import Exploration
from collage_core.contract import Joins


def worth_asking(exploration: Exploration, cuts: Sequence[int]) -> set[tuple[str, int]]:
    """Return target and nodes of what is worth asking for.

    Of targets that join anything, parts of what they take between two neighbouring cuts are not: to the estimates a
    region costs what its parts do, so there would be no end of asking for other ways to take it apart.

    Args:
        exploration: What is known so far.
        cuts: Between which positions regions were proposed.
    """
    ends = [*cuts, len(exploration.graph)]
    wanted: set[tuple[str, int]] = set()
    inside: dict[tuple[str, int], list[int]] = {}
    for candidate in exploration.pool:
        nodes, target = candidate.sub_graph.nodes, candidate.target
        first = bisect.bisect_right(ends, (nodes & -nodes).bit_length() - 1)
        if target.joins is not Joins.ANY or nodes.bit_length() > ends[first]:
            wanted.add((target.name, nodes))
        else:
            inside.setdefault((target.name, first), []).append(nodes)
    for (name, _), masks in inside.items():
        largest: list[int] = []
        for nodes in sorted(masks, key=lambda mask: (-mask.bit_count(), mask)):
            if all(nodes & ~other for other in largest):
                largest.append(nodes)
        wanted.update((name, nodes) for nodes in largest)
    return wanted
