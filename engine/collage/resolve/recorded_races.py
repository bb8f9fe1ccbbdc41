"""What races decided on a machine that may be elsewhere: none is run here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from collage.build.verifying.wrong_plans import WrongPlans
from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import decide
from collage.decide.feedback import WithFeedback, with_feedback
from collage.decide.races.going_on import NotRacedError
from collage.decide.races.saved_races import EndToEndTimings, SavedRaces, distinct, now
from collage.options import OptimizeOptions
from collage.resolve.elsewhere import Elsewhere
from collage.setup.workload import Workload
from collage.store import TuningStore
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.errors import CollageError

_UNRACED = "these plans did not race there: it is the cheapest by what its kernels take alone"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """The plan that is chosen by what is known.

    Attributes:
        plan: The plan.
        pool: The candidates, with what those that were timed in place take there.
        decision: Why it is this one.
        measured_us: What it took in its race, in microseconds; None if it did not race.
        notes: A sentence for each faster plan that was wrong there.
    """

    plan: Plan
    pool: CandidatePool
    decision: str
    measured_us: float | None
    notes: tuple[str, ...]


class RecordedRaces:
    """What races decided.

    Args:
        saved: The races that the store has.
        wrong: Plans that turned out wrong there.
        plugins: Version of each toolchain's plugin there.
        bound: Largest error that kernels of lower precision may cause.
        seed: Of the bootstrap.
        tie_breaking: Whom to prefer where a race cannot tell.
    """

    def __init__(
        self,
        saved: SavedRaces,
        wrong: WrongPlans,
        plugins: Mapping[str, str],
        *,
        bound: float,
        seed: int,
        tie_breaking: TieBreaking,
    ) -> None:
        self._saved = saved
        self._wrong = wrong
        self._plugins = plugins
        self._bound = bound
        self._seed = seed
        self._tie_breaking = tie_breaking

    @classmethod
    def of(
        cls,
        options: OptimizeOptions,
        store: TuningStore,
        workload: Workload,
        machine: Elsewhere,
        tie_breaking: TieBreaking,
    ) -> RecordedRaces:
        """Return the races of a model on a machine, as they are kept under the options of `optimize`.

        Args:
            options: What the user said.
            store: Has them.
            workload: The model.
            machine: The machine.
            tie_breaking: Whom to prefer where a race cannot tell.
        """
        bound = machine.source.settings.inexact_tolerance.relative
        saved = SavedRaces.under(
            options,
            database=store,
            workload=workload,
            host=machine.host,
            threads=machine.threads,
            tolerance=bound,
            plugins=machine.plugins,
            variant=machine.source.variant,
        )
        wrong = WrongPlans(store, workload.sha256, workload.key, machine.host, machine.threads)
        return cls(saved, wrong, machine.plugins, bound=bound, seed=options.seed, tie_breaking=tie_breaking)

    def choose(self, pool: CandidatePool, plans: Sequence[Plan], usual_us: float | None) -> Chosen:
        """Return the plan that is kept there, or would be.

        Args:
            pool: The candidates.
            plans: Those that are worth a race.
            usual_us: What the calibration kernel usually takes on the machine; None if it never ran.

        Raises:
            CollageError: If every plan is known to be wrong there.
        """
        try:
            timings = self._raced(plans)
        except NotRacedError:
            return self._by_costs(pool, plans)
        fed = self._fed_back(pool, plans, timings, usual_us)
        notes: list[str] = []
        timings = fed.timings
        while timings.timed:
            failed = [plan.name for plan in fed.found.plans if not plan.single and plan.name in timings.failed]
            decided = decide(timings.timed, self._seed, failed=failed, tie_breaking=self._tie_breaking)
            plan = next(plan for plan in fed.found.plans if plan.name == decided.winner)
            if reason := self._against(plan):
                notes.append(f"{plan.name} was the fastest and was not kept there: {reason}")
                timings = timings.without(plan.name, reason)
                continue
            [measured_us] = [each.time_us for each in timings.timed if each.name == decided.winner]
            return Chosen(
                plan=plan, pool=fed.found.pool, decision=decided.reason, measured_us=measured_us, notes=tuple(notes)
            )
        raise CollageError("no plan was right there: " + "; ".join(notes or timings.failed.values()))

    def _by_costs(self, pool: CandidatePool, plans: Sequence[Plan]) -> Chosen:
        right = [plan for plan in plans if not self._against(plan)]
        if not right:
            raise CollageError("no plan was right there: " + "; ".join(map(self._against, plans)))
        plan = min(right, key=lambda plan: (plan.predicted_us, plan.name))
        return Chosen(plan=plan, pool=pool, decision=_UNRACED, measured_us=None, notes=())

    def _against(self, plan: Plan) -> str:
        return self._wrong.reason(plan, [self._plugins[name] for name in plan.toolchains], self._bound)

    def _raced(self, plans: Sequence[Plan], *, after: EndToEndTimings | None = None) -> EndToEndTimings:
        """Return what came of racing plans.

        Raises:
            NotRacedError: If they did not race.
        """
        chosen = distinct(plans)
        name = self._saved.name(chosen, after, mixes_wait=after is None)  # as `optimize` races what it found
        known = self._saved.get(name)
        if known is None:
            raise NotRacedError
        return self._saved.timings(name, known, chosen, after, now())

    def _fed_back(
        self, pool: CandidatePool, plans: Sequence[Plan], timings: EndToEndTimings, usual_us: float | None
    ) -> WithFeedback:
        """Return what is known once plans raced; plans that look better then count if they raced there, too."""
        return with_feedback(
            pool,
            plans,
            timings,
            lambda plans, *, after, keep: self._raced(plans, after=after),
            usual_us=usual_us,
            most=self._saved.preset.challengers,
            seed=self._seed,
            tie_breaking=self._tie_breaking,
        )
