"""Phase 3: candidates are measured, searched, merged, measured again, until the best path is stable."""

from __future__ import annotations

import dataclasses

from collage.explore.covering import covered
from collage.explore.exploration import Exploration, ExplorationSetup, Explored
from collage.explore.measuring import HANGS, is_unmeasured, measured
from collage.explore.proposing import check_cover, cuts_of, proposed, weights_from_work, worth_measuring
from collage.explore.searching import best_paths, confirmed, merged_on
from collage_core.candidates.pool import CandidatePool
from collage_core.fusion import quantised_groups

_GROUPS_NAMED = 3


def explore_exhaustively(setup: ExplorationSetup, pool: CandidatePool) -> Explored:
    """Measure the candidates that a preset says, and search the best plan of them.

    Args:
        setup: Targets, preset, and what measures.
        pool: Candidates to begin with, usually none.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    exploration = begun(setup, pool)
    operators = worth_measuring(exploration, operators=setup.preset.operators)
    exploration = measured(exploration, "measuring operators and whole models", operators)
    cuts = cuts_of(exploration, weights_from_work(exploration))
    known = set(exploration.pool)
    exploration = proposed(exploration, cuts)
    regions = [c for each in exploration.proposed.by_target.values() for c in each.candidates if c not in known]
    exploration = measured(exploration, f"measuring regions between {len(cuts)} cuts", regions)
    exploration = covered(exploration, cuts)
    return concluded(_improved(exploration))


def begun(setup: ExplorationSetup, pool: CandidatePool) -> Exploration:
    """Return an exploration in which targets proposed operators and groups, but no regions.

    Args:
        setup: What the exploration is given.
        pool: Candidates to begin with.

    Raises:
        UncoveredError: If no target proposes anything for some node.
    """
    exploration = proposed(Exploration.begin(setup, pool), ())
    check_cover(exploration)
    return exploration


def concluded(exploration: Exploration) -> Explored:
    """Search, confirm the best path, and say what was left out.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    exploration, result = confirmed(exploration)
    return Explored(
        pool=exploration.pool,
        proposals=exploration.proposed.by_target,
        failures=exploration.proposed.failures,
        result=result,
        rounds=exploration.rounds,
        left_out=_left_out(exploration),
        search_s=exploration.search_s,
        history=exploration.history,
    )


def _improved(exploration: Exploration) -> Exploration:
    """Search, and measure merged neighbours of the best plans, until there are no new ones."""
    for _ in range(exploration.setup.preset.coalesce_rounds):
        exploration, paths = best_paths(exploration)
        merged = [candidate for path in paths for candidate in merged_on(exploration, path)]
        exploration = dataclasses.replace(exploration, pool=exploration.pool.with_candidates(merged))
        fresh = [candidate for candidate in merged if is_unmeasured(exploration, candidate)]
        if not fresh:
            break
        exploration = measured(exploration, "measuring merged neighbours", fresh)
    return exploration


def _left_out(exploration: Exploration) -> tuple[str, ...]:
    pool, preset = exploration.pool, exploration.setup.preset
    said = [sentence for each in exploration.proposed.by_target.values() for sentence in each.left_out]
    unmeasured = {pool.cache_key(c) for c in pool if is_unmeasured(exploration, c)}
    if unmeasured:
        said.append(
            f"{len(unmeasured)} of {pool.distinct()} distinct candidates were not measured (preset {preset.name})"
        )
    if apart := [group for group in quantised_groups(pool.graph) if group not in exploration.proposed.groups]:
        named = ", ".join(repr(pool.graph.names[group.bit_length() - 1]) for group in apart[:_GROUPS_NAMED])
        said.append(f"{len(apart)} quantised operators fall apart: no toolchain runs them whole ({named})")
    said += [
        f"{name} hung on the first {HANGS} candidates that were tried; {len(others)} others were not"
        for name, others in sorted(exploration.given_up.items())
    ]
    if exploration.skipped:
        said.append(f"the budget ended before {exploration.skipped} measurements")
    if exploration.has_run_enough:
        said.append(
            f"no more was measured once candidates had run for {exploration.setup.running_s:g} s (preset {preset.name})"
        )
    return tuple(dict.fromkeys(said))
