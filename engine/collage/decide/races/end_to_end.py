"""Time plans end to end: build them, save them, and time them against each other in fresh processes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from collage.build.assemble import Assembled
from collage.decide.contenders import package_contender
from collage.decide.races.race import Raced, race
from collage.decide.races.saved_races import (
    EndToEndTimings,
    FailedPlan,
    SavedRace,
    SavedRaces,
    distinct,
    failed_again,
    may_be_tried,
    now,
)
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.contenders.interleaved import DEADLINE_S
from collage.report.progress import Progress
from collage_core.candidates.plan import Plan
from collage_core.errors import CollageError

_LEAST_S = 10.0
"""Seconds in which a plan has to be loaded and run once, though the budget is spent."""
_JOINING_S = 30.0
"""Seconds after a preset's in which heats of plans that join begin, at most."""
_LARGER = 1.25
"""A race that a budget cut short is run anew with one that is larger by this factor: less would add few rounds, and the
share of a budget that one of several shapes has differs a little from run to run.
"""


class EndToEndTimer:
    """Times plans of one model, once per database.

    A plan that cannot be built, or fails while it is timed, is tried again by the next run that needs it, because the
    cause may be temporary (a full disk, short memory). After `MAX_ATTEMPTS` the failure is final, for these versions of
    the plugins. With another version of any all plans are timed again: other code runs them. So they are with another
    version of the judge, which may have called a kernel wrong.

    Args:
        saved: Where every sample is kept.
        folder: Folder for packages.
        inputs: Documents of `write_values` with the model's inputs, which runs have in turn; made on first use.
        build: Makes a plan executable.
        progress: Receives progress updates.
        retry_failed: Whether to try again what failed in earlier runs, however often.
        budget: Time until which heats end, but for the first. A race that it cut short is run anew when there is more.
    """

    def __init__(
        self,
        *,
        saved: SavedRaces,
        folder: Path,
        inputs: Callable[[], Sequence[Path]],
        build: Callable[[Plan], Assembled],
        progress: Progress,
        retry_failed: bool = False,
        budget: Budget = UNLIMITED,
    ) -> None:
        self._saved = saved
        self._retry_failed = retry_failed
        self._began = now()
        self._budget = budget
        self._folder = folder
        self._inputs = inputs
        self._build = build
        self._progress = progress

    def run(
        self,
        plans: Sequence[Plan],
        *,
        after: EndToEndTimings | None = None,
        keep: Collection[str] = (),
        mixes_wait: bool = False,
    ) -> EndToEndTimings:
        """Time plans; plans with equal kernels are timed once.

        Args:
            plans: The plans.
            after: The race that they go on with: their rounds are numbered from its end on. A new race if None.
            keep: Names of plans that stay as long as another does.
            mixes_wait: As of `race`, for one that is gone on with.
        """
        chosen, saved = distinct(plans), self._saved
        name = saved.name(chosen, after, mixes_wait=mixes_wait)
        known = saved.get(name)
        if known is not None and self._retry_failed:
            known = known.with_attempts_left(before=self._began)
        part = _Part(
            first_round=0 if after is None else after.end,
            limit_s=saved.preset.race_s if after is None else self.left_s(after),
            keep=[plan.key for plan in chosen if plan.name in keep],
            mixes_wait=mixes_wait,
        )
        if known is None or self._has_more_time_than(known):
            raced = self._time(chosen, {} if known is None else known.failed, part)
        elif again := [plan for plan in chosen if may_be_tried(plan, known.failed)]:
            raced = self._tried_again(again, chosen, known, part)
        else:
            return saved.timings(name, known, chosen, after, self._began)
        raced = saved.put(name, raced, anew=known is not None)
        return saved.timings(name, raced, chosen, after, self._began)

    def left_s(self, after: EndToEndTimings) -> float:
        """Return seconds in which heats may begin that go on with a race: as many as it took before others joined.

        Twice as many if it was not finished. 0 or less if they took these already, or if the race took too long for its
        preset.
        """
        raced_s = after.took_s - after.repeated_s
        before_s = (raced_s - after.joined_s) * (2 if after.waited else 1)
        return min(before_s - after.joined_s, self._saved.preset.race_s + _JOINING_S - raced_s)

    def _has_more_time_than(self, known: SavedRace) -> bool:
        return known.cut_s is not None and self._budget.seconds > _LARGER * known.cut_s

    def _tried_again(self, again: Sequence[Plan], plans: Sequence[Plan], known: SavedRace, part: _Part) -> SavedRace:
        """Time all plans anew if a failed one can now be built; samples of different races are not comparable."""
        packages, failed = self._packages(again)
        failures = failed_again(known.failed, failed)
        return self._time(plans, failures, part) if packages else dataclasses.replace(known, failed=failures)

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
                    assembled.save(path, None, threads=self._saved.threads, model_name=plan.name, model_sha256="")
            except CollageError as error:
                failed[plan.key] = str(error)
                self._progress.message(f"{plan.name}: {error}")
                continue
            packages[plan.key] = path
        return packages, failed

    def _time(self, plans: Sequence[Plan], failures: Mapping[str, FailedPlan], part: _Part) -> SavedRace:
        """Time the plans that have not failed too often."""
        began = time.monotonic()
        packages, failed = self._packages([p for p in plans if p.key not in failures or may_be_tried(p, failures)])
        inputs = self._inputs()
        raced = self._raced(packages, inputs, plans, part)
        if len(inputs) > 1 and packages and not raced.rounds:  # other sizes may make no sense to this model
            self._progress.message("no plan runs all sizes near the typical ones: timing the typical ones alone")
            sizes_s = raced.repeated_s
            raced = self._raced(packages, inputs[:1], plans, part)
            raced = dataclasses.replace(raced, repeated_s=sizes_s + raced.repeated_s)
        again = failed_again(failures, {**failed, **raced.failed})
        still_failed = {key: why for key, why in again.items() if key not in raced.rounds}
        return SavedRace(
            timed=raced.rounds,
            called=raced.called,
            calibrations_us=raced.calibrations_us,
            parts_us=raced.parts_us,
            failed=still_failed,
            open=raced.open,
            cut_s=self._budget.seconds if raced.cut_short else None,
            took_s=time.monotonic() - began,
            repeated_s=raced.repeated_s,
        )

    def _raced(self, packages: Mapping[str, Path], inputs: Sequence[Path], plans: Sequence[Plan], part: _Part) -> Raced:
        """Race packages, whose runs have these inputs in turn."""
        contenders = {
            key: package_contender(key, path, inputs, self._saved.threads, built_here=True)
            for key, path in packages.items()
        }
        return race(
            contenders,
            [plan.key for plan in plans if plan.single],
            kernels={plan.key: len(plan.kernels) for plan in plans},
            rounds=self._saved.preset.rounds,
            round_s=self._saved.preset.round_s,
            limit_s=part.limit_s,
            least_heats=1 if part.first_round else 2,
            first_round=part.first_round,
            keep=part.keep,
            mixes_wait=part.mixes_wait,
            no_time=lambda heat_s: self._budget.left_s < heat_s,
            deadline_s=self._budget.within(DEADLINE_S, least_s=_LEAST_S),
            threads=self._saved.threads,
            load_wait_s=self._saved.preset.load_wait_s,
            percent=self._saved.percent,
            progress=self._progress,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Where a race begins, the seconds in which its heats begin, the keys of plans to keep, and `mixes_wait`."""

    first_round: int
    limit_s: float
    keep: Collection[str]
    mixes_wait: bool
