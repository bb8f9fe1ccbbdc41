"""Measure candidates, and tell what is covered by what was measured.

Which candidates are measured depends on recorded costs and on nothing else, and a cost counts from the step on that
asks for it, so that a second run over the same database takes the same steps and measures nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

from collage.explore.exploration import Exploration
from collage.measure.driver.records import DEADLINE_REASON
from collage.measure.driver.source import Step
from collage.measure.wire.outcomes import Failed, Outcome
from collage_core.candidates.costs import CacheKey
from collage_core.contract import Unmeasured
from collage_core.fusion import CandidateKernel

HANGS = 4
"""Number of hangs after which a target without any success is given up: each hang costs the whole deadline."""

_NAMES_SHOWN = 2


def measured(
    exploration: Exploration,
    what: str,
    candidates: Iterable[CandidateKernel],
    purpose: Literal["select", "confirm"] = "select",
    *,
    needed: bool = False,
    brief: bool = False,
) -> Exploration:
    """Measure candidates, or look up what the database knows of them.

    Args:
        exploration: What is known so far.
        what: Name of the phase, for the progress display.
        candidates: What to measure, in this order; those that share a cost once.
        purpose: `"select"` measures what was never tried, `"confirm"` adds fresh samples.
        needed: Whether a plan cannot do without, so that neither a limit nor a hanging target leaves them out.
        brief: Whether a rough time will do, and being right when run once.
    """
    setup, wanted = exploration.setup, list(candidates)
    pool = exploration.pool.with_candidates(wanted)
    waiting: dict[CacheKey, CandidateKernel] = {}
    for candidate in wanted:
        waiting.setdefault(pool.cache_key(candidate), candidate)
    if not waiting:
        return exploration
    setup.progress.phase(what, len(waiting))
    setup.source.expect(waiting.values())
    reached: list[CacheKey] = []
    running: dict[int, CandidateKernel] = {}
    skipped, given_up = exploration.skipped, dict(exploration.given_up)
    before, ran_s = exploration.pool.costs.reached or frozenset(), exploration.ran_s
    well, hangs = set(exploration.well), dict(exploration.hangs)

    def settle(candidate: CandidateKernel) -> None:
        """Take note of what came of one."""
        nonlocal ran_s
        name = candidate.measured_as.name
        if purpose == "select" and pool.cache_key(candidate) not in before:
            ran_s += setup.source.ran_s(candidate)
        # by what is recorded, so that a later run over the same database gives up at the same point
        if not _is_hang(setup.source.outcome(candidate)):
            well.add(name)
        elif name not in well:
            hangs[name] = hangs.get(name, 0) + 1
        setup.progress.advance()

    def chosen() -> Iterator[CandidateKernel]:
        """Yield the next to measure whenever there is room for one."""
        nonlocal skipped
        for key, candidate in waiting.items():
            name, known = candidate.measured_as.name, setup.source.outcome(candidate) is not None
            spared = not needed and not (purpose == "select" and pool.is_whole(candidate))
            if exploration.is_spent and spared:
                skipped += 1
                setup.progress.advance()
            elif purpose == "select" and ran_s >= setup.running_s and spared and key not in before:
                setup.progress.advance()
            # what is known costs nothing: where several were measured at once, more are known than one run would try
            elif hangs.get(name, 0) >= HANGS and name not in well and not needed and not known:
                given_up[name] = given_up.get(name, frozenset()) | {key}
                setup.progress.advance()
            else:
                reached.append(key)
                running[id(candidate)] = candidate
                yield candidate
                if known and purpose == "select" and id(candidate) in running:  # nothing was measured
                    settle(running.pop(id(candidate)))

    def done(step: Step) -> None:
        """Take note of one that was measured."""
        _tell(exploration, step)
        if id(step.candidate) in running:
            settle(running.pop(id(step.candidate)))

    setup.source.measure(chosen(), purpose, done, brief=brief)
    for candidate in running.values():  # one with the record of another
        settle(candidate)
    return dataclasses.replace(
        exploration,
        pool=pool.with_costs(pool.costs.reaching(reached)),
        skipped=skipped,
        ran_s=ran_s,
        given_up=given_up,
        well=frozenset(well),
        hangs=hangs,
    )


def is_unmeasured(exploration: Exploration, candidate: CandidateKernel) -> bool:
    """Return whether this run has no cost of a candidate yet."""
    return isinstance(exploration.pool.cost(candidate, confirmed=False), Unmeasured)


def is_operator(exploration: Exploration, candidate: CandidateKernel) -> bool:
    """Return whether nothing smaller runs a candidate's nodes: it is one of them, or a quantised operator."""
    nodes = candidate.sub_graph.nodes & exploration.graph.needs_kernel
    return nodes.bit_count() == 1 or nodes in exploration.proposed.groups


def uncovered(exploration: Exploration) -> int:
    """Return the mask of the nodes that nothing usable covers."""
    missing = exploration.graph.needs_kernel
    for candidate in exploration.pool:
        if exploration.pool.selected_us(candidate) is not None:
            missing &= ~candidate.sub_graph.nodes
    return missing


def _is_hang(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Failed) and outcome.reason.startswith(DEADLINE_REASON)


def _tell(exploration: Exploration, step: Step) -> None:
    if isinstance(step.outcome, Failed):
        names = step.candidate.sub_graph.names
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        shown = ", ".join(names[:_NAMES_SHOWN]) + more
        target = step.candidate.measured_as.name
        exploration.setup.progress.message(f"{target} failed on {shown}: {step.outcome.reason}")
