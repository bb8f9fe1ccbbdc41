"""Have targets propose candidates, and choose the cuts between which they propose regions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage.explore.exploration import Exploration, UncoveredError
from collage.explore.measuring import is_operator
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.proposals import TargetRule, worthwhile
from collage_core.errors import NoCoverError, PluginError
from collage_core.fusion import CandidateKernel, cut_positions
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.graph.work import estimated_work_us

_UNMEASURED_WEIGHT = 0.1
"""Weight of a node's estimated work relative to a measured difference between targets, when cuts are placed."""


def proposed(exploration: Exploration, cuts: Sequence[int]) -> Exploration:
    """Have each target propose; a quantised operator that none of them takes whole may come apart.

    Args:
        exploration: What is known so far.
        cuts: Where regions may begin and end.
    """
    setup = exploration.setup
    progress, asked = setup.progress, 0

    def advance(rule: TargetRule, error: PluginError | None) -> None:
        nonlocal asked
        if asked % len(setup.rules) == 0:
            progress.phase("finding candidates", len(setup.rules))
        asked += 1
        if error is not None:
            progress.message(f"{rule.target.name}: {error}")
        progress.advance()

    made = propose_all(
        setup.rules, exploration.graph, setup.bounds, cuts=cuts, before=exploration.proposed, proposed=advance
    )
    return dataclasses.replace(exploration, pool=exploration.pool.with_candidates(made.candidates), proposed=made)


def check_cover(exploration: Exploration) -> None:
    """Raise an error at once, before anything is measured, where no target proposes anything for a node.

    Raises:
        UncoveredError: If there is such a node.
    """
    missing = exploration.graph.needs_kernel & ~exploration.proposed.covered
    if missing:
        raise UncoveredError(NoCoverError(tuple(iterate_bits(missing))), exploration)


def worth_measuring(exploration: Exploration, operators: int) -> list[CandidateKernel]:
    """Return what a preset has measured before any region is chosen; see `worthwhile`."""
    return [
        candidate
        for each in exploration.proposed.by_target.values()
        for candidate in worthwhile(
            exploration.graph, each.candidates, exploration.setup.source.key, operators, exploration.proposed.groups
        )
    ]


def cuts_of(exploration: Exploration, believed: Sequence[float]) -> tuple[int, ...]:
    """Choose positions around the nodes on which targets differ most, and where the work is.

    Args:
        exploration: What is known so far.
        believed: How much it matters, in microseconds, who runs each node that is not measured.
    """
    bounds = exploration.setup.bounds
    return cut_positions(
        exploration.graph,
        bounds.segments - 1,
        _weights(exploration, believed),
        max_live=bounds.max_live,
        groups=exploration.proposed.groups,
    )


def weights_from_work(exploration: Exploration) -> list[float]:
    """Return how much it matters who runs each node, going by its estimated work alone."""
    return [_UNMEASURED_WEIGHT * work for work in estimated_work_us(exploration.graph)]


def _weights(exploration: Exploration, believed: Sequence[float]) -> list[float]:
    graph, pool = exploration.graph, exploration.pool
    costs: dict[str, dict[str, float]] = {}
    keys: dict[int, str] = {}
    for candidate in pool:
        if not is_operator(exploration, candidate) or not candidate.target.mixable:
            continue
        last = (candidate.sub_graph.nodes & graph.needs_kernel).bit_length() - 1
        key = keys[last] = exploration.setup.source.key(candidate.sub_graph)
        cost = pool.selected_us(candidate)
        if cost is not None:
            costs.setdefault(key, {})[candidate.measured_as.name] = cost
    weights = list(believed)
    for index, key in keys.items():
        known = costs.get(key, {}).values()
        if len(known) > 1:
            weights[index] = max(known) - min(known)
    return weights
