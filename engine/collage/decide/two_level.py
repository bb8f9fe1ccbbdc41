"""The second level of `--search two-level`: change whole plans by moves and evaluate them by racing.

Plans are timed side by side with the best plans of the first level, a few rounds each. Every heat is kept in the
database like any race, so a second run over the same database takes the same steps. The plan found this way is the
minimum of many noisy measurements. It is therefore timed once more, and accepted only if it is significantly faster
than its start and would be kept among all plans of that race. Otherwise the first level's result stands unchanged: a
race that shows no gain does not reopen earlier decisions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import decide
from collage.decide.neighbours import beliefs_of, choice_of, moves_over, plan_of, reachable_kernels
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.timed import Timed
from collage.measure.statistics import Interval, ratio_interval
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals
from collage_core.contract import INVALID, Unmeasured
from collage_core.errors import CollageError
from collage_core.fusion import CandidateKernel
from collage_core.search import SearchCandidate
from collage_core.search.moves import Choice
from collage_core.search.two_level import TwoLevelLimits, TwoLevelResult, trace_document, two_level

NAME = "two-level"
"""Name of the plan found by the second level."""
FITNESS_ROUNDS = 6
"""Rounds of a heat that evaluates neighbours: enough to resolve 5 %; the winner is timed again at length."""

Race = Callable[[Sequence[Plan]], EndToEndTimings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Improved:
    """What the second level came to.

    Attributes:
        pool: The candidates, with those that moves need.
        plans: Those of the first level; with what was found, if that is faster.
        timings: The race that decides: the first level's, or, if what was found is faster, the one it won.
        note: What came of it, in a sentence.
        trace: Every plan that was timed, as JSON.
    """

    pool: CandidatePool
    plans: tuple[Plan, ...]
    timings: EndToEndTimings
    note: str
    trace: Mapping[str, Any]


def improved(
    pool: CandidatePool,
    plans: Sequence[Plan],
    timings: EndToEndTimings,
    proposals: Mapping[str, Proposals],
    *,
    judge: Race,
    race: Race,
    measure: Callable[[CandidateKernel], None],
    limits: TwoLevelLimits,
    stop: Callable[[], bool],
    tie_breaking: TieBreaking | None = None,
) -> Improved:
    """Improve plans by their end-to-end latency.

    Args:
        pool: Candidates with what they cost.
        plans: What the first level gave.
        timings: How these fared.
        proposals: What each target takes, by name.
        judge: Times a few plans in few rounds.
        race: Times plans as thoroughly as the preset says.
        measure: Has one candidate measured, so that the plan that is kept has costs.
        limits: How long to search.
        stop: Asked before each heat.
        tie_breaking: See `decide`.
    """

    def winner(timed: Sequence[Timed]) -> str:
        return decide(timed, limits.seed, tie_breaking=tie_breaking).winner

    started = _starts(plans, timings, winner)
    if not started:
        note = "two-level: there is no plan to start from"
        return Improved(pool=pool, plans=tuple(plans), timings=timings, note=note, trace={})
    reachable = tuple(reachable_kernels(pool, started, proposals))
    pool = pool.with_candidates(reachable)
    moves = moves_over(pool, [*(kernel for plan in started for kernel in plan.kernels), *reachable])
    beliefs = beliefs_of(pool)
    evaluator = _Evaluator(pool, started[0], judge)

    def predicted_us(chosen: SearchCandidate) -> float:
        known = pool.selected_us(pool.candidate(chosen))
        return beliefs.mean_us(chosen.target, chosen.nodes) if known is None else known

    starts = [choice_of(pool, plan) for plan in started]
    result = two_level(moves, starts, evaluator, limits=limits, predicted_us=predicted_us, stop=stop)
    trace = trace_document(result, lambda plan: _described(pool, plan))
    timed = f"two-level: {len(result.trace)} plans were timed, {len(starts)} of them to start from"
    unchanged = Improved(
        pool=pool,
        plans=tuple(plans),
        timings=timings,
        note=f"{timed}; no gain: none was faster",
        trace=_with(trace, result, None),
    )
    if result.best in starts:
        return unchanged
    pool, found = _measured(pool, result.best, measure)
    unchanged = dataclasses.replace(unchanged, pool=pool)
    if found is None:
        return dataclasses.replace(unchanged, note=f"{timed}; no gain: a kernel of the fastest fails alone")
    again = race([*plans, found])
    ratio = _against(again, started[0].name, limits.seed)
    said = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "it could not be run"
    traced = _with(trace, result, ratio)
    if ratio is None or ratio.high >= 1:
        note = f"{timed}; no gain: timed afresh the fastest is not faster than its start beyond doubt ({said})"
        return dataclasses.replace(unchanged, note=note, trace=traced)
    if winner(again.timed) != NAME:
        note = f"{timed}; no gain: the fastest takes {said} of its start's time and would not be kept among all plans"
        return dataclasses.replace(unchanged, note=note, trace=traced)
    note = f"{timed}; timed afresh, the fastest takes {said} of its start's time"
    return Improved(pool=pool, plans=(*plans, found), timings=again, note=note, trace=traced)


class _Evaluator:
    """See `collage_core.search.two_level.Evaluator`."""

    def __init__(self, pool: CandidatePool, base: Plan, judge: Race) -> None:
        self._pool = pool
        self._base = base
        self._judge = judge

    def evaluate(self, plans: Sequence[Choice]) -> list[float]:
        made = [plan_of(self._pool, f"move-{number}", choice) for number, choice in enumerate(plans)]
        timings = self._judge([self._base, *(plan for plan in made if plan.key != self._base.key)])
        timed = {each.name: each for each in timings.timed}
        base = timed.get(self._base.name)
        ratios = []
        for plan in made:
            own = base if plan.key == self._base.key else timed.get(plan.name)
            ratios.append(INVALID if own is None or base is None else _ratio(own, base, 0).value)
        return ratios


def _starts(plans: Sequence[Plan], timings: EndToEndTimings, winner: Callable[[Sequence[Timed]], str]) -> list[Plan]:
    """Return the plans that ran, starting with the one that would be kept."""
    if not timings.timed:
        return []
    kept = winner(timings.timed)
    names = {each.name for each in timings.timed}
    return sorted((plan for plan in plans if plan.name in names), key=lambda plan: plan.name != kept)


def _measured(
    pool: CandidatePool, choice: Choice, measure: Callable[[CandidateKernel], None]
) -> tuple[CandidatePool, Plan | None]:
    """Return the pool with a cost for each kernel, and the plan; None if a kernel has none."""
    for chosen in choice:
        kernel = pool.candidate(chosen)
        if isinstance(pool.cost(kernel), Unmeasured):
            try:
                measure(kernel)
            except CollageError:
                return pool, None
            pool = pool.with_costs(pool.costs.reaching([pool.cache_key(kernel)]))
        if pool.selected_us(kernel) is None:
            return pool, None
    return pool, plan_of(pool, NAME, choice)


def _against(timings: EndToEndTimings, start: str, seed: int) -> Interval | None:
    """Compute the ratio of the improved plan to its start; return None if one of them could not be run."""
    timed = {each.name: each for each in timings.timed}
    if NAME not in timed or start not in timed:
        return None
    return _ratio(timed[NAME], timed[start], seed)


def _ratio(one: Timed, other: Timed, seed: int) -> Interval:
    both = min(len(one.rounds_us), len(other.rounds_us))
    return ratio_interval(one.rounds_us[:both], other.rounds_us[:both], seed=seed, percent=one.percent)


def _described(pool: CandidatePool, plan: Choice) -> list[dict[str, Any]]:
    kernels = [pool.candidate(chosen) for chosen in plan]
    return [{"target": kernel.target.name, "nodes": list(kernel.sub_graph.names)} for kernel in kernels]


def _with(trace: Mapping[str, Any], result: TwoLevelResult, ratio: Interval | None) -> dict[str, Any]:
    """Add to the trace the winner's ratio when it was timed afresh."""
    afresh = None if ratio is None else {"ratio": ratio.value, "ci95": [ratio.low, ratio.high]}
    return {**trace, "afresh": afresh}
