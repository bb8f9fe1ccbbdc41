"""End to end: plans are built, saved, and timed against each other in fresh processes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage_core.contract import Host
from collage_core.database import TuningStore
from collage_core.errors import CollageError
from collage_core.pipeline.assemble import Assembled
from collage_core.pipeline.contenders import package_contender
from collage_core.pipeline.decision import Timed
from collage_core.pipeline.options import Preset
from collage_core.pipeline.plan import Plan
from collage_core.pipeline.race import race
from collage_core.report.progress import Progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refined:
    """What an end-to-end comparison came to.

    Attributes:
        timed: Contenders with samples. Who left the race early has fewer rounds.
        failed: Reason by name of each plan that could not be built or run.
    """

    timed: tuple[Timed, ...]
    failed: Mapping[str, str]

    def without(self, name: str, reason: str) -> Refined:
        """The same without a plan that turned out wrong.

        Args:
            name: A plan in `timed`.
            reason: Why it cannot be kept.
        """
        left = tuple(each for each in self.timed if each.name != name)
        return Refined(timed=left, failed={**self.failed, name: reason})


class Refiner:
    """Times plans of one model, once per database.

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
    ) -> None:
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

    def run(self, plans: Sequence[Plan]) -> Refined:
        """Times plans; those of equal kernels once."""
        distinct: dict[str, Plan] = {}
        for plan in plans:
            distinct.setdefault(plan.key, plan)
        chosen = list(distinct.values())
        name = self._name(chosen)
        document = self._database.get_plan(name)
        if document is None:
            document = self._time(chosen)
            self._database.put_plan(name, document)
        return _read(document, chosen)

    def _name(self, plans: Sequence[Plan]) -> str:
        what = {
            "plans": sorted(plan.key for plan in plans),
            "model": self._model_key,
            "host": self._host.fingerprint,
            "threads": self._threads,
            "tolerance": self._tolerance,
            "race": [self._preset.rounds, self._preset.round_s, self._preset.race_s],
        }
        return f"end-to-end/{hashlib.sha256(json.dumps(what).encode()).hexdigest()}"

    def _time(self, plans: Sequence[Plan]) -> dict[str, Any]:
        self._progress.phase("building plans", sum(len(plan.kernels) for plan in plans))
        failed: dict[str, str] = {}
        packages: dict[str, Path] = {}
        for plan in plans:
            try:
                assembled = self._build(plan)
                path = self._folder / f"{plan.key}.collage"
                if not path.exists():
                    assembled.save(path, None, threads=self._threads, model_name=plan.name, model_sha256="")
            except CollageError as error:
                failed[plan.key] = str(error)
                self._progress.message(f"{plan.name}: {error}")
                continue
            packages[plan.key] = path
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
            "failed": {**failed, **raced.failed},
        }


def _read(document: Mapping[str, Any], plans: Sequence[Plan]) -> Refined:
    timed = tuple(
        Timed(
            name=plan.name,
            single=plan.single,
            kernels=len(plan.kernels),
            toolchains=len(plan.toolchains),
            rounds_us=tuple(tuple(each) for each in document["timed"][plan.key]),
        )
        for plan in plans
        if plan.key in document["timed"]
    )
    failed = {plan.name: document["failed"][plan.key] for plan in plans if plan.key in document["failed"]}
    return Refined(timed=timed, failed=failed)
