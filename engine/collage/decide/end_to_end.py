"""Time plans end to end: build them, save them, and time them against each other in fresh processes."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from collage.build.assemble import Assembled
from collage.decide.contenders import package_contender
from collage.decide.decision import Timed
from collage.decide.race import Raced, race
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.contenders.interleaved import DEADLINE_S, Rounds
from collage.measure.worker.judge_version import JUDGE
from collage.options import Preset
from collage.report.progress import Progress
from collage.store import MAX_ATTEMPTS, TuningStore, plan_name
from collage_core.candidates.plan import Plan
from collage_core.candidates.refusals import Remembered
from collage_core.contract import Host
from collage_core.errors import CollageError

_LEAST_S = 10.0
"""Seconds in which a plan has to be loaded and run once, though the budget is spent."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndToEndTimings:
    """Results of an end-to-end comparison.

    Attributes:
        timed: Contenders with samples. A contender that left the race early has fewer rounds.
        failed: Reason for each plan that could not be built or run, by plan name.
        race: Name of the race in the database.
    """

    timed: tuple[Timed, ...]
    failed: Mapping[str, str]
    race: str = ""

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

        Args:
            later: The rounds that followed.
        """
        known = {each.name: each for each in self.timed}
        went_on = {each.name: known[each.name].then(each) if each.name in known else each for each in later.timed}
        left = {name: each for name, each in known.items() if name not in later.failed}
        return EndToEndTimings(
            timed=tuple({**left, **went_on}.values()), failed={**self.failed, **later.failed}, race=later.race
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
    """

    KIND: ClassVar[str] = "race"
    VERSION: ClassVar[int] = 5

    timed: Mapping[str, Rounds]
    called: Mapping[str, Rounds]
    calibrations_us: Mapping[str, tuple[float, ...]]
    parts_us: Mapping[str, tuple[Mapping[str, float], ...]]
    failed: Mapping[str, FailedPlan]

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


class EndToEndTimer:
    """Times plans of one model, once per database.

    A plan that cannot be built, or fails while it is timed, is tried again by the next run that needs it, because the
    cause may be temporary (a full disk, short memory). After `MAX_ATTEMPTS` the failure is final, for these versions of
    the plugins. With another version of any all plans are timed again: other code runs them. So they are with another
    version of the judge, which may have called a kernel wrong.

    Args:
        database: Keeps every sample.
        model: SHA-256 of the model as given.
        model_key: Hash of the model with its weights, input shapes and inputs.
        host: This machine.
        threads: CPU threads.
        tolerance: Largest error of a kernel; a plan that fails one tolerance may pass another.
        preset: Length of the race.
        folder: Folder for packages.
        inputs: Documents of `write_values` with the model's inputs, which runs have in turn; made on first use.
        build: Makes a plan executable.
        progress: Receives progress updates.
        deterministic: Whether only deterministic kernels are used; plans are timed separately in this mode.
        plugins: Version of each toolchain's plugin.
        retry_failed: Whether to try again what failed in earlier runs, however often.
        budget: Time until which heats begin; a race that may be cut short is kept apart from others.
        sizes: Sizes of the inputs, where they have several in turn: such runs are timed as users call them.
        percent: Which percentile of a round's samples counts.
    """

    def __init__(
        self,
        *,
        database: TuningStore,
        model: str,
        model_key: str,
        host: Host,
        threads: int,
        tolerance: float,
        preset: Preset,
        folder: Path,
        inputs: Callable[[], Sequence[Path]],
        build: Callable[[Plan], Assembled],
        progress: Progress,
        deterministic: bool = False,
        plugins: Mapping[str, str] | None = None,
        retry_failed: bool = False,
        budget: Budget = UNLIMITED,
        sizes: Sequence[Mapping[str, int]] = (),
        percent: float = 50.0,
    ) -> None:
        self._percent = percent
        self._plugins = plugins or {}
        self._retry_failed = retry_failed
        self._began = _now()
        self._budget = budget
        self._deterministic = deterministic
        self._database = database
        self._model = model
        self._model_key = model_key
        self._host = host
        self._threads = threads
        self._tolerance = tolerance
        self._preset = preset
        self._folder = folder
        self._inputs = inputs
        self._sizes = sizes
        self._build = build
        self._progress = progress

    def run(self, plans: Sequence[Plan], *, after: EndToEndTimings | None = None) -> EndToEndTimings:
        """Time plans; plans with equal kernels are timed once.

        Args:
            plans: The plans.
            after: The race that they go on with: their rounds are numbered from its end on. A new race if None.
        """
        distinct: dict[str, Plan] = {}
        for plan in plans:
            distinct.setdefault(plan.key, plan)
        chosen = list(distinct.values())
        name, first_round = self._name(chosen, after), 0 if after is None else after.end
        known = self._database.get_document(SavedRace, name)
        if known is not None and self._retry_failed:
            known = _with_attempts_left(known, before=self._began)
        if known is None:
            raced = self._time(chosen, {}, first_round)
        elif again := [plan for plan in chosen if _may_be_tried(plan, known.failed)]:
            raced = self._tried_again(again, chosen, known, first_round)
        else:
            return _timings(known, chosen, self._began, name, first_round, self._percent)
        self._database.put_document(name, raced)
        return _timings(raced, chosen, self._began, name, first_round, self._percent)

    def _tried_again(
        self, again: Sequence[Plan], plans: Sequence[Plan], known: SavedRace, first_round: int
    ) -> SavedRace:
        """Time all plans anew if a failed one can now be built; samples of different races are not comparable."""
        packages, failed = self._packages(again)
        failures = _failed_again(known.failed, failed)
        return self._time(plans, failures, first_round) if packages else dataclasses.replace(known, failed=failures)

    def _name(self, plans: Sequence[Plan], after: EndToEndTimings | None) -> str:
        what = {
            "plans": sorted(plan.key for plan in plans),
            "model": self._model_key,
            "host": self._host.fingerprint_for(*(kernel.target.device for plan in plans for kernel in plan.kernels)),
            "threads": self._threads,
            "tolerance": self._tolerance,
            "race": [self._preset.rounds, self._preset.round_s, self._preset.race_s],
            "judge": JUDGE,
            "plugins": sorted({self._plugins.get(name, "") for plan in plans for name in plan.toolchains}),
        }
        if not math.isinf(self._budget.seconds):
            what["budget"] = self._budget.seconds
        if self._sizes:
            what["sizes"] = [dict(each) for each in self._sizes]
        if self._deterministic:
            what["deterministic"] = True
        if self._percent != 50.0:
            what["percent"] = self._percent
        if after is not None:
            what["after"] = after.race
        targets = {name for plan in plans for name in plan.targets}
        return plan_name(self._model, targets, hashlib.sha256(json.dumps(what).encode()).hexdigest())

    def _packages(self, plans: Sequence[Plan]) -> tuple[dict[str, Path], dict[str, str]]:
        """Build the package of each plan; return the paths and the build failures, by key."""
        self._progress.phase("building plans", sum(len(plan.kernels) for plan in plans))
        failed: dict[str, str] = {}
        packages: dict[str, Path] = {}
        for plan in plans:
            path = self._folder / f"{plan.key}.collage"
            try:
                if not path.exists():
                    assembled = self._build(plan)
                    assembled.save(path, None, threads=self._threads, model_name=plan.name, model_sha256="")
            except CollageError as error:
                failed[plan.key] = str(error)
                self._progress.message(f"{plan.name}: {error}")
                continue
            packages[plan.key] = path
        return packages, failed

    def _time(self, plans: Sequence[Plan], failures: Mapping[str, FailedPlan], first_round: int) -> SavedRace:
        """Time the plans that have not failed too often."""
        packages, failed = self._packages([p for p in plans if p.key not in failures or _may_be_tried(p, failures)])
        inputs = self._inputs()
        raced = self._raced(packages, inputs, plans, first_round)
        if len(inputs) > 1 and packages and not raced.rounds:  # other sizes may make no sense to this model
            self._progress.message("no plan runs all sizes near the typical ones: timing the typical ones alone")
            raced = self._raced(packages, inputs[:1], plans, first_round)
        again = _failed_again(failures, {**failed, **raced.failed})
        still_failed = {key: why for key, why in again.items() if key not in raced.rounds}
        return SavedRace(
            timed=raced.rounds,
            called=raced.called,
            calibrations_us=raced.calibrations_us,
            parts_us=raced.parts_us,
            failed=still_failed,
        )

    def _raced(
        self, packages: Mapping[str, Path], inputs: Sequence[Path], plans: Sequence[Plan], first_round: int
    ) -> Raced:
        """Race packages, whose runs have these inputs in turn."""
        contenders = {
            key: package_contender(key, path, inputs, self._threads, built_here=True) for key, path in packages.items()
        }
        return race(
            contenders,
            [plan.key for plan in plans if plan.single],
            rounds=self._preset.rounds,
            round_s=self._preset.round_s,
            limit_s=self._preset.race_s,
            first_round=first_round,
            stop=lambda: self._budget.is_spent,
            deadline_s=self._budget.within(DEADLINE_S, least_s=_LEAST_S),
            threads=self._threads,
            percent=self._percent,
            progress=self._progress,
        )


def _may_be_tried(plan: Plan, failures: Mapping[str, FailedPlan]) -> bool:
    """Return whether a plan failed but has attempts left."""
    return plan.key in failures and failures[plan.key].attempts < MAX_ATTEMPTS


def _failed_again(failures: Mapping[str, FailedPlan], reasons: Mapping[str, str]) -> dict[str, FailedPlan]:
    """Return the failures by key after another attempt failed for the given reasons."""
    attempts = {key: 1 + (failures[key].attempts if key in failures else 0) for key in reasons}
    again = {key: FailedPlan(reason=why, attempts=attempts[key], created=_now()) for key, why in reasons.items()}
    return {**failures, **again}


def _with_attempts_left(race: SavedRace, before: str) -> SavedRace:
    """Return a race whose plans that failed before some time were never tried."""
    failed = {
        key: dataclasses.replace(each, attempts=0) if each.created < before else each
        for key, each in race.failed.items()
    }
    return dataclasses.replace(race, failed=failed)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def _why(failure: FailedPlan, began: str) -> str:
    """Return why a plan failed, and since when that is known if an earlier run found it out."""
    return failure.reason + (f"; {Remembered(since=failure.created)}" if failure.created < began else "")


def _timings(
    race: SavedRace, plans: Sequence[Plan], began: str, name: str, first_round: int, percent: float
) -> EndToEndTimings:
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
            first_round=first_round,
            percent=percent,
        )
        for plan in plans
        if plan.key in race.timed
    )
    failed = {plan.name: _why(race.failed[plan.key], began) for plan in plans if plan.key in race.failed}
    return EndToEndTimings(timed=timed, failed=failed, race=name)
