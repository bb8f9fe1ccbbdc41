"""Explain what targets did not take of a graph."""

from __future__ import annotations

from collections.abc import Iterable

from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals
from collage_core.candidates.refusals import Refusal, TargetFailure


def refusals(
    pool: CandidatePool, proposals: Iterable[Proposals], failures: Iterable[TargetFailure] = ()
) -> tuple[Refusal, ...]:
    """What targets did not take, by stage and reason; of a target whose plugin failed, that, and no nodes."""
    grouped: dict[tuple[str, str, str], dict[str, None]] = {
        (failure.target.name, failure.stage, failure.reason): {} for failure in failures
    }
    for each in proposals:
        for index, reason in sorted(each.refusals.items()):
            stage = "query" if index in each.rule.query else "predicate"
            stage = "pin" if index in each.rule.pinned else stage
            grouped.setdefault((each.rule.target.name, stage, reason), {})[pool.graph.names[index]] = None
    for candidate in pool:
        if rejection := pool.rejection(candidate):
            names = grouped.setdefault((candidate.target.name, rejection.stage, rejection.reason), {})
            names.update(dict.fromkeys(candidate.sub_graph.names))
    return tuple(
        Refusal(target=target, stage=stage, nodes=tuple(names), reason=reason)
        for (target, stage, reason), names in sorted(grouped.items())
    )
