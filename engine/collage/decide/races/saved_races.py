"""Races as the tuning database keeps them: under what, and what they say of plans."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from collage.decide.timed import Timed
from collage.measure.contenders.interleaved import Rounds
from collage.measure.worker.judge_version import JUDGE
from collage.options import OptimizeOptions, Preset
from collage.setup.workload import Workload
from collage.store import MAX_ATTEMPTS, TuningStore, plan_name
from collage_core.candidates.plan import Plan
from collage_core.candidates.refusals import Remembered
from collage_core.contract import Host
from collage_core.fusion import CandidateKernel


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndToEndTimings:
    """Results of an end-to-end comparison.

    Attributes:
        timed: Contenders with samples. A contender that left the race early has fewer rounds.
        failed: Reason for each plan that could not be built or run, by plan name.
        race: Name of the race in the database.
        took_s: Seconds that it took when it was run, to build the plans included.
        repeated_s: Those in which turns were taken again.
        joined_s: Seconds since further plans joined, without those of repeated turns.
        open: Names of the mixed plans whose order is open, because they wait for others to join.
        waited: Whether there were such plans.
    """

    timed: tuple[Timed, ...]
    failed: Mapping[str, str]
    race: str = ""
    took_s: float = 0.0
    repeated_s: float = 0.0
    joined_s: float = 0.0
    open: tuple[str, ...] = ()
    waited: bool = False

    @property
    def end(self) -> int:
        """Number of the round after the last."""
        return max((each.end for each in self.timed), default=0)

    def without(self, name: str, reason: str) -> EndToEndTimings:
        """Return the timings with a plan moved to the failed ones because its outputs are wrong.

        Args:
            name: A plan in `timed`.
            reason: Why the plan cannot be kept.
        """
        left = tuple(each for each in self.timed if each.name != name)
        return dataclasses.replace(self, timed=left, failed={**self.failed, name: reason})

    def then(self, later: EndToEndTimings) -> EndToEndTimings:
        """Return the timings of a race that goes on, with some of its contenders and with others.

        A contender that had left before its end counts by what it did since.

        Args:
            later: The rounds that followed.
        """
        known = {each.name: each for each in self.timed}
        went_on = {
            each.name: known[each.name].then(each)
            if each.name in known and known[each.name].end == each.first_round
            else each
            for each in later.timed
        }
        left = {name: each for name, each in known.items() if name not in later.failed}
        return EndToEndTimings(
            timed=tuple({**left, **went_on}.values()),
            failed={**self.failed, **later.failed},
            race=later.race,
            took_s=self.took_s + later.took_s,
            repeated_s=self.repeated_s + later.repeated_s,
            joined_s=self.joined_s + later.took_s - later.repeated_s,
            waited=self.waited,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailedPlan:
    """A plan without samples.

    Attributes:
        reason: Why, the last time.
        attempts: How often it was tried.
        created: When, the last time, as ISO 8601 with offset.
    """

    reason: str
    attempts: int
    created: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedRace:
    """A race as the database keeps it.

    Attributes:
        timed: Samples of the bound call by key of a plan, by round; of runs as users call them where sizes vary.
        called: The same of runs as users call them.
        calibrations_us: Time of the calibration kernel beside each round, by key.
        parts_us: Time of each call site in its place, in each of the first rounds, by key.
        failed: The other plans, by key.
        open: Keys of the mixed plans whose order is open, if they wait for others to join.
        cut_s: Seconds of the budget that ended it before anything else did; None if none did.
        took_s: Seconds that it took, to build the plans included.
        repeated_s: Those in which turns were taken again.
    """

    KIND: ClassVar[str] = "race"
    VERSION: ClassVar[int] = 8

    timed: Mapping[str, Rounds]
    called: Mapping[str, Rounds]
    calibrations_us: Mapping[str, tuple[float, ...]]
    parts_us: Mapping[str, tuple[Mapping[str, float], ...]]
    failed: Mapping[str, FailedPlan]
    open: tuple[str, ...] = ()
    cut_s: float | None = None
    took_s: float = 0.0
    repeated_s: float = 0.0

    def __post_init__(self) -> None:
        for rounds in (*self.timed.values(), *self.called.values()):
            if not rounds or not all(samples and min(samples) > 0 for samples in rounds):
                raise ValueError("each plan that was timed has samples of each round, all above zero")
        for key, beside_us in self.calibrations_us.items():
            if len(beside_us) != len(self.timed.get(key, ())) or min(beside_us) <= 0:
                raise ValueError("each round of a plan has one calibration, above zero")
        for key, parts in self.parts_us.items():
            if len(parts) > len(self.timed.get(key, ())) or any(part.keys() != parts[0].keys() for part in parts):
                raise ValueError("a plan has the same call sites in each round, and no more rounds than it ran")

    def with_attempts_left(self, before: str) -> SavedRace:
        """Return the same with plans that failed before some time as if they were never tried."""
        failed = {
            key: dataclasses.replace(each, attempts=0) if each.created < before else each
            for key, each in self.failed.items()
        }
        return dataclasses.replace(self, failed=failed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedRaces:
    """The races of one model, as run under one set of conditions.

    Attributes:
        database: Keeps them.
        model: SHA-256 of the model as given.
        model_key: Hash of the model with its weights, input shapes and inputs.
        host: The machine.
        threads: CPU threads.
        tolerance: Largest error of a kernel; a plan that fails one tolerance may pass another.
        preset: Length of the race.
        deterministic: Whether only deterministic kernels are used.
        plugins: Version of each toolchain's plugin.
        variant: Returns which variant of a kernel its plan runs; see `RecordedCosts.variant`.
        sizes: Sizes of the inputs, where they have several in turn.
        percent: Which percentile of a round's samples counts.
    """

    database: TuningStore
    model: str
    model_key: str
    host: Host
    threads: int
    tolerance: float
    preset: Preset
    deterministic: bool = False
    plugins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variant: Callable[[CandidateKernel], str | None] = lambda _: None
    sizes: Sequence[Mapping[str, int]] = ()
    percent: float = 50.0

    @classmethod
    def under(
        cls,
        options: OptimizeOptions,
        *,
        database: TuningStore,
        workload: Workload,
        host: Host,
        threads: int,
        tolerance: float,
        plugins: Mapping[str, str],
        variant: Callable[[CandidateKernel], str | None],
        preset: Preset | None = None,
    ) -> SavedRaces:
        """Return the races of a model as the options of `optimize` have them; see the class for the others.

        Args:
            options: What the user said.
            database: See the class.
            workload: The model.
            host: See the class.
            threads: See the class.
            tolerance: See the class.
            plugins: See the class.
            variant: See the class.
            preset: Length of the race; that of the options if None.
        """
        return cls(
            database=database,
            model=workload.sha256,
            model_key=workload.key,
            host=host,
            threads=threads,
            tolerance=tolerance,
            preset=preset or options.effective,
            deterministic=options.deterministic,
            plugins=plugins,
            variant=variant,
            sizes=workload.sizes_in_turn,
            percent=options.percentile,
        )

    def name(self, plans: Sequence[Plan], after: EndToEndTimings | None, *, mixes_wait: bool = False) -> str:
        """Return under what the race of some plans is kept.

        Args:
            plans: Those that race.
            after: The race that they go on with; None for a new one.
            mixes_wait: As of `race`.
        """
        ordered = sorted(plans, key=lambda plan: plan.key)
        what: dict[str, Any] = {
            "plans": [plan.key for plan in ordered],
            "variants": [[self.variant(kernel) for kernel in plan.kernels] for plan in ordered],
            "model": self.model_key,
            "host": self.host.fingerprint_for(*(kernel.target.device for plan in plans for kernel in plan.kernels)),
            "threads": self.threads,
            "tolerance": self.tolerance,
            "race": [self.preset.rounds, self.preset.round_s, self.preset.race_s],
            "judge": JUDGE,
            "plugins": sorted({self.plugins.get(name, "") for plan in plans for name in plan.toolchains}),
        }
        if self.sizes:
            what["sizes"] = [dict(each) for each in self.sizes]
        if self.deterministic:
            what["deterministic"] = True
        if self.percent != 50.0:
            what["percent"] = self.percent
        if after is not None:
            what["after"] = after.race
        if mixes_wait:
            what["mixes_wait"] = True
        targets = {name for plan in plans for name in plan.targets}
        return plan_name(self.model, targets, hashlib.sha256(json.dumps(what).encode()).hexdigest())

    def get(self, name: str) -> SavedRace | None:
        """Return the race of a name; None if there was none."""
        return self.database.get_document(SavedRace, name)

    def put(self, name: str, race: SavedRace, *, anew: bool) -> SavedRace:
        """Keep a race, and return the one that is kept.

        Args:
            name: Its name.
            race: The race.
            anew: Whether it takes the place of a known one; otherwise one that another process ran meanwhile stays.
        """
        if not anew:
            return self.database.keep_first(name, race)
        self.database.put_document(name, race)
        return race

    def timings(
        self, name: str, race: SavedRace, plans: Sequence[Plan], after: EndToEndTimings | None, began: str
    ) -> EndToEndTimings:
        """Return what a race says of plans.

        Args:
            name: Its name.
            race: The race.
            plans: Those that ran.
            after: The race that they went on with.
            began: When this run began, as ISO 8601: of a plan that failed before, that is said.
        """
        timed = tuple(
            Timed(
                name=plan.name,
                single=plan.single,
                kernels=len(plan.kernels),
                toolchains=len(plan.toolchains),
                rounds_us=race.timed[plan.key],
                called_us=race.called.get(plan.key, ()),
                # the calibration kernel says nothing of a device's speed
                calibrations_us=race.calibrations_us.get(plan.key, ()) if plan.is_on_host else (),
                parts_us=race.parts_us.get(plan.key, ()),
                targets=plan.targets,
                first_round=0 if after is None else after.end,
                percent=self.percent,
            )
            for plan in plans
            if plan.key in race.timed
        )
        failed = {plan.name: _why(race.failed[plan.key], began) for plan in plans if plan.key in race.failed}
        return EndToEndTimings(
            timed=timed,
            failed=failed,
            race=name,
            took_s=race.took_s,
            repeated_s=race.repeated_s,
            open=tuple(plan.name for plan in plans if plan.key in race.open),
            waited=bool(race.open),
        )


def distinct(plans: Sequence[Plan]) -> list[Plan]:
    """Return plans of which no two have equal kernels: of equal ones the first."""
    found: dict[str, Plan] = {}
    for plan in plans:
        found.setdefault(plan.key, plan)
    return list(found.values())


def may_be_tried(plan: Plan, failures: Mapping[str, FailedPlan]) -> bool:
    """Return whether a plan failed but has attempts left."""
    return plan.key in failures and failures[plan.key].attempts < MAX_ATTEMPTS


def failed_again(failures: Mapping[str, FailedPlan], reasons: Mapping[str, str]) -> dict[str, FailedPlan]:
    """Return the failures by key after another attempt failed for the given reasons."""
    attempts = {key: 1 + (failures[key].attempts if key in failures else 0) for key in reasons}
    again = {key: FailedPlan(reason=why, attempts=attempts[key], created=now()) for key, why in reasons.items()}
    return {**failures, **again}


def now() -> str:
    """Return the time, as ISO 8601 with offset."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def _why(failure: FailedPlan, began: str) -> str:
    """Return why a plan failed, and since when that is known if an earlier run found it out."""
    return failure.reason + (f"; {Remembered(since=failure.created)}" if failure.created < began else "")
