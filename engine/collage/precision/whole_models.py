"""Kernels of lower precision for the whole model: what they take, and what they do to the outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from collage.errors import PrecisionError
from collage.precision.plans.bound import Bound
from collage.precision.plans.plan_errors import PlanErrors
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, Joins, Target, Unmeasured
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.ir.graph.masks import mask_of

_ATTEMPTS: Final = 5
"""Forms of a whole model that are built for each target until one uses the bound up without exceeding it."""
_NEARLY: Final = 0.8
"""Share of what may be used up above which no other form is tried."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """What was found out of a kernel for the whole model.

    Attributes:
        cost_us: Its cost in microseconds.
        error: Error of its plan; infinite if that does not run.
        kept: Whether its plan keeps to the bound.
    """

    cost_us: float
    error: float
    kept: bool


class WholeModels:
    """Looks at kernels for the whole model, one target after another.

    Args:
        environment: The model and the toolchains.
        pool: What was measured so far.
        bound: What plans have to keep to.
        plan_errors: Runs plans.
        progress: Receives progress updates.

    Attributes:
        bound: As given.
        pool: The candidates, with those found here that keep to the bound.
        found: What was found out of each kernel that was run.
        errors: Errors of the plans that were run, by the plan's key.
        best_us: Cost of the fastest kernel for the whole model that keeps to the bound.
    """

    def __init__(
        self,
        environment: Environment[Workload],
        pool: CandidatePool,
        bound: Bound,
        plan_errors: PlanErrors,
        progress: Progress,
    ) -> None:
        self._environment = environment
        self.bound = bound
        self._plan_errors = plan_errors
        self._progress = progress
        self.pool = pool
        self.found: dict[CandidateKernel, WholeModel] = {}
        self.errors: dict[str, float] = {}
        costs = (pool.selected_us(candidate) for candidate in pool if pool.is_whole(candidate))
        self.best_us = min((cost for cost in costs if cost is not None), default=INVALID)

    def rounded(self, target: Target, sensitivities: Sensitivities) -> Sensitivities:
        """Look at a target that rounds everything; return what is known after it."""
        candidate = self._whole(target, sensitivities, 0)
        if (cost_us := self._measured(candidate)) is None or cost_us >= self.best_us:
            return sensitivities
        found = self._run(candidate, cost_us)
        if found.kept:
            self._take(candidate, cost_us)
        return sensitivities.learning(candidate, found.error)

    def quantised(self, target: Target, sensitivities: Sensitivities) -> Sensitivities:
        """Look for the form that uses up most of the bound on a target that quantises; return what is known after it.

        Args:
            target: The target.
            sensitivities: What each group of products does to the outputs.
        """
        order = sensitivities.by_price(target)
        tried: dict[int, WholeModel] = {}
        for _ in range(_ATTEMPTS):
            if self._environment.budget.exploring.is_spent:
                break
            forms = [self._whole(target, sensitivities, count) for count in range(len(order) + 1)]
            count = next_count(list(map(sensitivities.square, forms)), self.bound.error, tried)
            if count in tried or count < 0 or (count == 0 and not target.rounded_precision):
                break
            candidate = forms[count]
            cost_us = self._measured(candidate)
            if cost_us is None or cost_us >= self.best_us:
                break
            tried[count] = found = self._run(candidate, cost_us)
            sensitivities = sensitivities.learning(candidate, found.error)
            if found.kept:
                self._take(candidate, cost_us)
                if found.error >= _NEARLY * self.bound.error or count == len(order):
                    break
        return sensitivities

    def plan_error(self, plan: Plan) -> tuple[float, bool]:
        """Run a plan and return its error, which is infinite if it does not run, and whether it keeps to the bound."""
        self._progress.phase(f"looking at the error of {plan.name}")
        found = self._plan_errors(plan)
        self.errors[plan.key] = found.error
        eight = sum(len(kernel.sub_graph.int8) for kernel in plan.kernels)
        said, kept = f"error {found.error:.3g}" if not found.reason else found.reason, False
        try:
            refused = len(self.bound.refused)
            kept = self.bound.keeps(plan, found.error)
            if len(self.bound.refused) > refused:
                said += f"; {self.bound.refused[-1]}"
        except PrecisionError as error:
            said = str(error)
        form = f"{len(plan.kernels)} kernel(s), {eight} product(s) in int8"
        self._progress.message(f"{plan.name}: {form}, {plan.predicted_us / 1e3:.2f} ms, {said}")
        return found.error, kept

    def _whole(self, target: Target, sensitivities: Sensitivities, count: int) -> CandidateKernel:
        chosen: Sequence[int] = sensitivities.by_price(target)[:count] if target.quantises else ()
        return sensitivities.quantised(self.pool.graph, self.pool.whole, target, chosen)

    def _measured(self, candidate: CandidateKernel) -> float | None:
        """Measure a kernel, or look up what the database knows; return its cost, None if it is not usable."""
        source = self._environment.source
        self._progress.phase(f"measuring {candidate.target.name}", 1)
        source.measure([candidate])
        self._progress.advance()
        cost = source.cost(candidate, confirmed=False)
        return None if isinstance(cost, Unmeasured) or cost == INVALID else cost

    def _run(self, candidate: CandidateKernel, cost_us: float) -> WholeModel:
        """Run the plan of a kernel."""
        error, kept = self.plan_error(_plan_of(self.pool, candidate, cost_us))
        self.found[candidate] = found = WholeModel(cost_us=cost_us, error=error, kept=kept)
        return found

    def _take(self, candidate: CandidateKernel, cost_us: float) -> None:
        pool = self.pool.with_candidates([candidate])
        self.pool = pool.with_costs(pool.costs.reaching([pool.cache_key(candidate)]))
        self.best_us = min(self.best_us, cost_us)


def next_count(squares: Sequence[float], bound: float, tried: Mapping[int, WholeModel]) -> int:
    """Return how many groups to quantise next.

    It is the number that is expected to use up the bound. Once one form keeps to the bound and a larger one does not,
    it is between them, interpolated in their squared errors: what is rounded and what is quantised may be off from
    expectation by different factors.

    Args:
        squares: Expected square of the error, by number of groups quantised; after a run, in proportion to its error.
        bound: Largest error.
        tried: What was found out of forms, by number of groups.

    Returns:
        The number; -1, or one that was tried, if there is nothing more to try.

    Examples:
        >>> next_count([1.0, 2.0, 3.0, 4.0, 5.0], 2.0, {})
        3
        >>> failed = WholeModel(cost_us=1.0, error=3.0, kept=False)
        >>> next_count([1.0, 2.0, 3.0, 4.0, 5.0], 2.0, {4: failed, 0: WholeModel(cost_us=2.0, error=1.0, kept=True)})
        1
    """
    good = max((count for count, each in tried.items() if each.kept), default=-1)
    bad = min((count for count, each in tried.items() if not each.kept and count > good), default=len(squares))
    limit = bound**2
    if good >= 0 and bad < len(squares):
        least, most = tried[good].error ** 2, tried[bad].error ** 2
        share = (limit - least) / (most - least) if most > least else 0.5
        limit = squares[good] + min(max(share, 0.0), 1.0) * (squares[bad] - squares[good])
    expected = max((count for count, square in enumerate(squares) if square <= limit), default=-1)
    if bad < len(squares):
        expected = min(max(expected, good + 1), bad - 1)
    return expected


def fastest_exact(pool: CandidatePool) -> tuple[CandidateKernel, float] | None:
    """Return the fastest kernel for the whole model in its own types, with its cost in microseconds; or None."""
    found = [
        (candidate, cost)
        for candidate in pool
        if pool.is_whole(candidate)
        and candidate.target.exact
        and candidate.target.mixable
        and (cost := pool.selected_us(candidate)) is not None
    ]
    return min(found, key=lambda each: (each[1], each[0].target.name), default=None)


def plan_in_own_types(environment: Environment[Workload], pool: CandidatePool) -> Plan | None:
    """Return a plan of one kernel in the model's own types; None if there is none.

    Args:
        environment: The toolchains at work.
        pool: What was measured: the fastest is taken, or a kernel that was not measured if there is none.
    """
    if (found := fastest_exact(pool)) is not None:
        return _plan_of(pool, *found)
    nothing = Sensitivities(groups=(), int8=(), bf16=())
    for rule in environment.asked.rules:
        target = rule.target
        if target.exact and target.mixable and target.joins is Joins.ANY and not mask_of(rule.query) & pool.whole:
            return _plan_of(pool, nothing.quantised(pool.graph, pool.whole, target, ()), 0.0)
    return None


def _plan_of(pool: CandidatePool, candidate: CandidateKernel, cost_us: float) -> Plan:
    return Plan(
        name=candidate.target.name,
        single=True,
        partitioning=Partitioning(pool.graph, (candidate,)),
        costs_us=(cost_us,),
        dispatch_us=pool.dispatch_us,
    )
