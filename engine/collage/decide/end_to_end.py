"""End to end: plans are built, saved, and timed against each other in fresh processes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage.build.assemble import Assembled
from collage.decide.contenders import package_contender
from collage.decide.decision import Timed
from collage.decide.race import race
from collage.options import Preset
from collage.report.progress import Progress
from collage.store import MAX_ATTEMPTS, TuningStore
from collage_core.candidates.plan import Plan
from collage_core.contract import Host
from collage_core.errors import CollageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndToEndTimings:
    """What an end-to-end comparison came to.

    Attributes:
        timed: Contenders with samples. Who left the race early has fewer rounds.
        failed: Reason by name of each plan that could not be built or run.
    """

    timed: tuple[Timed, ...]
    failed: Mapping[str, str]

    def without(self, name: str, reason: str) -> EndToEndTimings:
        """The same without a plan that turned out wrong.

        Args:
            name: A plan in `timed`.
            reason: Why it cannot be kept.
        """
        left = tuple(each for each in self.timed if each.name != name)
        return EndToEndTimings(timed=left, failed={**self.failed, name: reason})


class EndToEndTimer:
    """Times plans of one model, once per database.

    A plan that cannot be built, or fails while it is timed, is tried again by the next run that wants it: the disk was
    full, or memory short. After `MAX_ATTEMPTS` that is how it is.

    Args:
        database: Keeps every sample.
        model_key: Hash of the model with its weights, input shapes and inputs.
        host: This machine.
        threads: CPU threads.
        tolerance: Largest error of a kernel; a plan that is wrong under one may be right under another.
        preset: How long the race is.
        folder: For packages.
        inputs: Document of `write_values` with the model's inputs, made when first wanted.
        build: Makes a plan runnable.
        progress: Is told.
        deterministic: Whether its kernels are the deterministic ones; a plan is timed anew with those.
    """

    def __init__(
        self,
        *,
        database: TuningStore,
        model_key: str,
        host: Host,
        threads: int,
        tolerance: float,
        preset: Preset,
        folder: Path,
        inputs: Callable[[], Path],
        build: Callable[[Plan], Assembled],
        progress: Progress,
        deterministic: bool = False,
    ) -> None:
        self._deterministic = deterministic
        self._database = database
        self._model_key = model_key
        self._host = host
        self._threads = threads
        self._tolerance = tolerance
        self._preset = preset
        self._folder = folder
        self._inputs = inputs
        self._build = build
        self._progress = progress

    def run(self, plans: Sequence[Plan]) -> EndToEndTimings:
        """Times plans; those of equal kernels once."""
        distinct: dict[str, Plan] = {}
        for plan in plans:
            distinct.setdefault(plan.key, plan)
        chosen = list(distinct.values())
        name = self._name(chosen)
        document = self._database.get_plan(name)
        if document is None or not _understood(document):
            document = self._time(chosen, _Failures())
            self._database.put_plan(name, document)
        elif again := [plan for plan in chosen if _Failures.of(document).may_be_tried(plan)]:
            document = self._tried_again(again, chosen, document)
            self._database.put_plan(name, document)
        return _read(document, chosen)

    def _tried_again(self, again: Sequence[Plan], plans: Sequence[Plan], document: Mapping[str, Any]) -> dict[str, Any]:
        """Times all plans anew if one that failed can be built now; samples of different races do not compare."""
        packages, failed = self._packages(again)
        failures = _Failures.of(document).with_(failed)
        return self._time(plans, failures) if packages else {**document, **failures.document()}

    def _name(self, plans: Sequence[Plan]) -> str:
        what = {
            "plans": sorted(plan.key for plan in plans),
            "model": self._model_key,
            "host": self._host.fingerprint_for(*(kernel.target.device for plan in plans for kernel in plan.kernels)),
            "threads": self._threads,
            "tolerance": self._tolerance,
            "race": [self._preset.rounds, self._preset.round_s, self._preset.race_s],
        }
        if self._deterministic:
            what["deterministic"] = True
        return f"end-to-end/{hashlib.sha256(json.dumps(what).encode()).hexdigest()}"

    def _packages(self, plans: Sequence[Plan]) -> tuple[dict[str, Path], dict[str, str]]:
        """The package of each plan, or why it has none, by key."""
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

    def _time(self, plans: Sequence[Plan], failures: _Failures) -> dict[str, Any]:
        """Times those that did not fail too often."""
        packages, failed = self._packages(
            [p for p in plans if p.key not in failures.reasons or failures.may_be_tried(p)]
        )
        contenders = {
            key: package_contender(key, path, self._inputs(), self._threads) for key, path in packages.items()
        }
        raced = race(
            contenders,
            [plan.key for plan in plans if plan.single],
            rounds=self._preset.rounds,
            round_s=self._preset.round_s,
            limit_s=self._preset.race_s,
            progress=self._progress,
        )
        return {
            "schema_version": 1,
            "timed": {key: [list(each) for each in rounds] for key, rounds in raced.rounds.items()},
            **failures.without(raced.rounds).with_({**failed, **raced.failed}).document(),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class _Failures:
    """Plans that failed, by key.

    Attributes:
        reasons: Why, the last time.
        attempts: How often.
    """

    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    attempts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> _Failures:
        """Those of a document; an earlier version did not count attempts."""
        reasons = document["failed"]
        return cls(reasons, {key: document.get("attempts", {}).get(key, 1) for key in reasons})

    def may_be_tried(self, plan: Plan) -> bool:
        """Whether a plan failed, and not so often that it is given up."""
        return 0 < self.attempts.get(plan.key, 0) < MAX_ATTEMPTS

    def with_(self, failed: Mapping[str, str]) -> _Failures:
        """After another attempt at some."""
        attempts = {key: self.attempts.get(key, 0) + 1 for key in failed}
        return _Failures({**self.reasons, **failed}, {**self.attempts, **attempts})

    def without(self, names: Iterable[str]) -> _Failures:
        """Without those that are well."""
        well = set(names)
        return _Failures({k: v for k, v in self.reasons.items() if k not in well}, self.attempts)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"failed": dict(self.reasons), "attempts": {key: self.attempts[key] for key in self.reasons}}


def _understood(document: Mapping[str, Any]) -> bool:
    """Whether a document is one this version writes; what an import or a later version left is timed anew."""
    timed, failed, attempts = (document.get(part, {}) for part in ("timed", "failed", "attempts"))
    if document.get("schema_version") != 1 or not all(isinstance(part, dict) for part in (timed, failed, attempts)):
        return False
    return (
        all(isinstance(rounds, list) and rounds and all(map(_is_round, rounds)) for rounds in timed.values())
        and all(isinstance(reason, str) for reason in failed.values())
        and all(isinstance(number, int) for number in attempts.values())
        and {"timed", "failed"} <= document.keys()
    )


def _is_round(samples: object) -> bool:
    return isinstance(samples, list) and bool(samples) and all(isinstance(us, int | float) and us > 0 for us in samples)


def _read(document: Mapping[str, Any], plans: Sequence[Plan]) -> EndToEndTimings:
    timed = tuple(
        Timed(
            name=plan.name,
            single=plan.single,
            kernels=len(plan.kernels),
            toolchains=len(plan.toolchains),
            rounds_us=tuple(tuple(each) for each in document["timed"][plan.key]),
            targets=plan.targets,
        )
        for plan in plans
        if plan.key in document["timed"]
    )
    failed = {plan.name: document["failed"][plan.key] for plan in plans if plan.key in document["failed"]}
    return EndToEndTimings(timed=timed, failed=failed)
