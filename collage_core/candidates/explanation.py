"""Explain what targets did not take of a graph, and why nothing covers a node."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals
from collage_core.candidates.refusals import Refusal, Remembered, TargetFailure, oldest
from collage_core.errors import NoCoverError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import SearchTarget


def refusals(
    proposals: Iterable[Proposals], failures: Iterable[TargetFailure] = (), *, pool: CandidatePool | None = None
) -> tuple[Refusal, ...]:
    """Return what targets did not take, by stage and reason.

    Args:
        proposals: What targets propose, and refuse.
        failures: Targets whose plugin failed; of these that is said, and no nodes.
        pool: Candidates that were tried, those among them that cannot be used being refused, too; None if none was.
    """
    grouped: dict[tuple[str, str, str], dict[str, None]] = {}
    known: dict[tuple[str, str, str], list[Remembered | None]] = {}
    for failure in failures:
        said = (failure.target.name, failure.stage, failure.reason)
        grouped[said] = {}
        known.setdefault(said, []).append(failure.remembered)
    for each in proposals:
        for index, reason in sorted(each.refusals.items()):
            stage = "query" if index in each.rule.query else "predicate"
            stage = "pin" if index in each.rule.pinned else stage
            grouped.setdefault((each.rule.target.name, stage, reason), {})[each.graph.names[index]] = None
    for candidate in pool or ():
        if pool is not None and (rejection := pool.rejection(candidate)):
            said = (candidate.target.name, rejection.stage, rejection.reason)
            grouped.setdefault(said, {}).update(dict.fromkeys(candidate.sub_graph.names))
            known.setdefault(said, []).append(rejection.remembered)
    return tuple(
        Refusal(target=said[0], stage=said[1], nodes=tuple(names), reason=said[2], remembered=oldest(known.get(said)))
        for said, names in sorted(grouped.items())
    )


def why_uncovered(
    error: NoCoverError,
    graph: DataflowGraph,
    facts: Iterable[Refusal],
    *,
    failures: Iterable[TargetFailure] = (),
    pool: CandidatePool | None = None,
    unusable: Iterable[str] = (),
) -> NoCoverError:
    """Return the error with the names of its nodes, and what each target said of them.

    Args:
        error: What a search, or a look at all proposals, found uncovered.
        graph: The graph.
        facts: What targets did not take, as `refusals` returns it.
        failures: Targets whose plugin failed.
        pool: The candidates; if no set of them fits together, targets that exclude each other are named.
        unusable: Why toolchains take no part, a sentence each.
    """
    names = tuple(graph.names[index] for index in error.nodes)
    operators = {graph.names[index]: graph.nodes[index].op_type for index in error.nodes}
    lines = list(unusable)
    lines += [
        f"{node!r} ({operators[node]}): {said_of(fact)}" for fact in facts for node in fact.nodes if node in operators
    ]
    lines += [f"{failure.target.name} failed in {failure.stage}: {failure.reason}" for failure in failures]
    if error.stuck and pool is not None:
        lines += pairs_apart(pool)
    return error.explained(tuple(dict.fromkeys(lines)), names)


def said_of(fact: Refusal) -> str:
    """Return what a target said, with its name, and since when that is known if nobody asked it now."""
    return f"{fact.target}: {fact.reason}" + (f" ({fact.remembered})" if fact.remembered else "")


def pairs_apart(pool: CandidatePool) -> list[str]:
    """Return a sentence for each two of the pool's targets that exclude each other."""
    found = {each.target.name: SearchTarget.of(each.target) for each in pool if each.target.mixable}
    return [
        f"{one.name} and {other.name} exclude each other, so no plan uses both"
        for (_, one), (_, other) in itertools.combinations(sorted(found.items()), 2)
        if not one.mixes_with(other)
    ]
