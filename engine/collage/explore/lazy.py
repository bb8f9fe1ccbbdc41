"""Phase 3 by the lazy search: what plans that may be the best lack is measured, and nothing else.

The toolchains' own profiles of whole models say first what each of them is good at.

`explore_exhaustively` measures a set of candidates that is fixed beforehand and says of it which plan is the best. Most
of them turn out not to matter: a region that is slow on one toolchain is slow in all the places that it overlaps with.
Here the same candidates are proposed, and what is not measured is estimated (`collage_core.search.beliefs`). As
there, what is done depends on recorded costs alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage.explore.covering import covered
from collage.explore.exhaustive import begun, concluded
from collage.explore.exploration import Exploration, ExplorationSetup, Explored, UncoveredError
from collage.explore.learning import Knowledge, knowing_nothing, looked_at, probed, with_profiles
from collage.explore.measuring import is_operator, is_unmeasured
from collage.explore.mixing import best_plan, looked_around
from collage.explore.proposing import cuts_of, proposed, worth_measuring
from collage.explore.regions import COARSEST, moved_regions, paired_regions, placed_regions, shifted_regions
from collage.explore.searching import confirmed, merged_on, searched
from collage_core.candidates.pool import CandidatePool
from collage_core.fusion import CandidateKernel
from collage_core.search import SearchResult, SearchTarget

_ROUNDS = 3
"""Rounds of proposing by what was learnt, for each in which neighbours may be joined: a border moves by an operator in
each, and what is not worth it is not measured.
"""

_FEW = 4
"""Most regions of the coarsest placement that are measured whatever is believed of them."""

_BEYOND_NOISE = 2.0
"""Standard deviations of a measurement by which a plan has to be dearer than it seemed for the search to look on."""


def explore_lazily(setup: ExplorationSetup, pool: CandidatePool) -> Explored:
    """Measure what best plans lack, until there is next to nothing to gain by it.

    Args:
        setup: Targets, preset, and what measures.
        pool: Candidates to begin with, usually none.

    Returns:
        What was found; its result is `exact` only if everything turned out to be measured.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    knowledge = knowing_nothing(begun(setup, pool))
    wholes = worth_measuring(knowledge.exploration, operators=0)
    knowledge = looked_at(knowledge, "measuring whole models", wholes)
    knowledge = looked_at(knowledge, "measuring what a toolchain leaves to others", _left_to_others(knowledge, wholes))
    knowledge = probed(with_profiles(knowledge, wholes))
    knowledge, cuts = _proposed_anew(knowledge)
    knowledge = looked_at(knowledge, "measuring the mix of the fewest kernels", _coarsest(knowledge))
    knowledge = _around(_improved(knowledge))
    exploration = covered(knowledge.exploration, cuts)
    is_covered = exploration.pool is knowledge.exploration.pool
    knowledge = knowledge.after(exploration)
    if not is_covered:  # there was no plan, so there was nothing to improve
        knowledge, _ = _proposed_anew(knowledge)
        knowledge = _around(_improved(knowledge))
    try:
        explored = concluded(_looked_on(knowledge))
    except UncoveredError as error:  # a kernel that nothing else covers failed when it was measured in full
        explored = concluded(covered(error.exploration, cuts))
    return dataclasses.replace(explored, result=dataclasses.replace(explored.result, method="lazy"))


def _left_to_others(knowledge: Knowledge, wholes: Sequence[CandidateKernel]) -> list[CandidateKernel]:
    """Return other targets' operators for what the largest regions of a target leave, if that is little.

    With these it has a plan of its own, which a mix has to beat.
    """
    exploration = knowledge.exploration
    pool, graph = exploration.pool, exploration.graph
    taken: dict[str, int] = {}
    targets = {rule.target.name: SearchTarget.of(rule.target) for rule in exploration.setup.rules}
    for candidate in wholes:
        if candidate.target.mixable and pool.selected_us(candidate) is not None:
            taken[candidate.target.name] = taken.get(candidate.target.name, 0) | candidate.sub_graph.nodes
    lacking: list[CandidateKernel] = []
    for name, nodes in sorted(taken.items()):
        rest = graph.needs_kernel & ~nodes
        if 0 < rest.bit_count() <= exploration.setup.preset.operators:
            lacking += [
                c
                for c in pool
                if c.target.name != name
                and c.target.mixable
                and SearchTarget.of(c.target).mixes_with(targets[name])
                and c.sub_graph.nodes & rest
                and is_operator(exploration, c)
            ]
    return lacking


def _proposed_anew(knowledge: Knowledge) -> tuple[Knowledge, tuple[int, ...]]:
    """Have regions proposed where what is known suggests that one target takes over from another."""
    cuts = cuts_of(knowledge.exploration, knowledge.weights())
    knowledge = knowledge.after(proposed(knowledge.exploration, cuts))
    return _with_regions(knowledge, placed_regions(knowledge.exploration, knowledge.beliefs)), cuts


def _coarsest(knowledge: Knowledge) -> list[CandidateKernel]:
    """Return what is not measured of the placement that changes targets only where it pays whatever crosses, if little.

    That is the mix of the fewest kernels, so it owes least to sums of what others take. What the search measures later
    of smaller regions may wrongly tell against it, because what it saves at their borders is in no cost.
    """
    exploration = knowledge.exploration
    regions = placed_regions(exploration, knowledge.beliefs, [COARSEST])
    lacking = [c for c in regions if not exploration.pool.is_whole(c) and is_unmeasured(exploration, c)]
    return lacking if len(lacking) <= _FEW else []


def _with_regions(knowledge: Knowledge, regions: Sequence[CandidateKernel]) -> Knowledge:
    """Add regions that may be asked for."""
    exploration = knowledge.exploration
    return knowledge.after(dataclasses.replace(exploration, pool=exploration.pool.with_candidates(regions)))


def _improved(knowledge: Knowledge) -> Knowledge:
    """Measure what best plans lack, join neighbours on the best, and propose anew by what was learnt of it."""
    for _ in range(_ROUNDS * knowledge.exploration.setup.preset.coalesce_rounds):
        knowledge, path = best_plan(knowledge)
        before = len(knowledge.exploration.pool)
        if path is not None:
            knowledge = _with_regions(knowledge, _near(knowledge.exploration, path))
        knowledge, _ = _proposed_anew(knowledge)
        if len(knowledge.exploration.pool) == before:
            break
    return knowledge


def _around(knowledge: Knowledge) -> Knowledge:
    """Measure what is near to the best plan by optimistic estimates, then near to the plan that is best after it."""
    for _ in range(_ROUNDS):
        knowledge, path = best_plan(knowledge)
        if path is None:
            break
        near = _near(knowledge.exploration, path)
        knowledge, before = _with_regions(knowledge, near), len(knowledge.learnt)
        knowledge, path = looked_around(knowledge, near)
        if path is not None:
            knowledge = _joined(knowledge, path)
        if len(knowledge.learnt) == before:
            break
    return knowledge


def _looked_on(knowledge: Knowledge) -> Exploration:
    """Measure the best plan again; look on where it turns out dearer than noise explains, and join neighbours on it.

    What other plans might save was judged by what this one seemed to take. If that was measured in a quick second, all
    of them looked too dear to be measured. Where another plan is the best then, its neighbours were not joined yet.
    """
    most = knowledge.exploration.setup.preset.confirm_rounds
    for turn in range(2 * most):
        exploration, believed = searched(knowledge.exploration)
        exploration, result = confirmed(exploration, believed, with_simple=True)
        knowledge, before = knowledge.after(exploration), len(knowledge.learnt)
        if turn < most and result.total_us > believed.total_us * (1 + _BEYOND_NOISE * knowledge.noise):
            knowledge = _around(_improved(knowledge))
        knowledge = _joined(knowledge, result)
        if len(knowledge.learnt) == before:
            break
    return knowledge.exploration


def _near(exploration: Exploration, path: SearchResult) -> list[CandidateKernel]:
    """Return kernels near to those of a plan."""
    return [
        *merged_on(exploration, path),
        *shifted_regions(exploration, path.candidates),
        *moved_regions(exploration, path.candidates),
    ]


def _joined(knowledge: Knowledge, path: SearchResult) -> Knowledge:
    """Measure neighbours on a plan as one kernel, all of them and any two, whatever is believed of it.

    What is believed is a sum over the parts. Where two kernels of one target meet on the best plan, that sum is what
    keeps them apart, and it may be off by more than its doubt says.
    """
    exploration = knowledge.exploration
    merged = [*merged_on(exploration, path), *paired_regions(exploration, path.candidates)]
    near = {(c.target.name, c.sub_graph.nodes): c for c in merged if not exploration.pool.is_whole(c)}
    joined = [c for c in near.values() if is_unmeasured(exploration, c)]
    knowledge = _with_regions(knowledge, joined)
    return looked_at(knowledge, "measuring merged neighbours", joined)
