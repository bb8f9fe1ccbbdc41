"""Measure until something usable covers every node, and some set of it fits together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage.explore.exploration import Exploration, UncoveredError
from collage.explore.measuring import is_operator, is_unmeasured, measured, uncovered
from collage.explore.proposing import proposed
from collage.explore.searching import searched
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits

_GROUP_ATTEMPTS = 3
"""Number of groups tried around a node that no kernel covers alone, before the node is given up."""


def covered(exploration: Exploration, cuts: Sequence[int]) -> Exploration:
    """Measure what covers every node; quantised operators that nothing runs whole come apart.

    Args:
        exploration: What is known so far.
        cuts: Between which positions regions were proposed.
    """
    exploration = _each_node_covered(exploration)
    missing = uncovered(exploration)
    if failed := {group for group in exploration.proposed.groups if group & missing}:
        apart = dataclasses.replace(exploration, proposed=exploration.proposed.without_groups(failed))
        exploration = _each_node_covered(proposed(apart, cuts))
    return _fitting(exploration)


def _each_node_covered(exploration: Exploration) -> Exploration:
    """Measure single operators, then the smallest groups there are, of what nothing usable covers."""
    missing = uncovered(exploration)
    alone = [c for c in exploration.pool if is_operator(exploration, c) and c.sub_graph.nodes & missing]
    exploration = measured(exploration, "measuring what nothing covers yet", alone, needed=True)
    for _ in range(_GROUP_ATTEMPTS):
        smallest: dict[int, CandidateKernel] = {}
        missing = uncovered(exploration)
        for candidate in exploration.pool:
            size = candidate.sub_graph.nodes.bit_count()
            if is_unmeasured(exploration, candidate):
                for index in iterate_bits(candidate.sub_graph.nodes & missing):
                    if index not in smallest or size < smallest[index].sub_graph.nodes.bit_count():
                        smallest[index] = candidate
        exploration = measured(
            exploration, "measuring groups of what nothing covers alone", smallest.values(), needed=True
        )
    return exploration


def _fitting(exploration: Exploration) -> Exploration:
    """Measure every operator alone where what covers the nodes overlaps, or makes circles, whatever is chosen."""
    try:
        return searched(exploration)[0]
    except UncoveredError as error:
        if not error.stuck:
            return exploration
        alone = [c for c in exploration.pool if is_operator(exploration, c) and is_unmeasured(exploration, c)]
        return measured(exploration, "measuring what nothing fits with", alone, needed=True)
