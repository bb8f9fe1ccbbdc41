"""End to end: plans are built, saved, and timed against each other in fresh processes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage_core.contract import Host
from collage_core.database import TuningStore
from collage_core.errors import CollageError
from collage_core.measure.contenders import Rounds, interleaved
from collage_core.measure.outcomes import Failed
from collage_core.measure.statistics import ratio_interval
from collage_core.pipeline.assemble import Assembled
from collage_core.pipeline.contenders import package_contender
from collage_core.pipeline.decision import Timed
from collage_core.pipeline.options import Preset
from collage_core.pipeline.plan import Plan
from collage_core.report.progress import Progress

_HOPELESS = 1.3
"""After the first rounds, contenders slower beyond doubt than this many times the fastest are not timed any further,
save the best single toolchain: it is what everything is compared with."""
_FIRST_ROUNDS = 3
_BATCHES = 3
"""The preset's rounds are repeated, in new processes, up to so many times while it is open who is faster."""
_CLOSE = 0.02
"""An interval that lies within so much of its ratio settles a comparison, whichever side of 1 it is on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refined:
    """What an end-to-end comparison came to.

    Attributes:
        timed: Contenders with samples; those of the final have them from the final only.
        failed: Reason by name of each plan that could not be built or run.
        dropped: Contenders left out of the final, with the samples that decided it.
        fresh: Whether anything was timed in this run.
    """

    timed: tuple[Timed, ...]
    failed: Mapping[str, str]
    dropped: tuple[Timed, ...]
    fresh: bool

    def without(self, name: str, reason: str) -> Refined:
        """The same without a plan that turned out wrong; if no other is left, those dropped have their turn.

        Args:
            name: A plan in `timed`.
            reason: Why it cannot be kept.
        """
        left = tuple(each for each in self.timed if each.name != name)
        return dataclasses.replace(
            self,
            timed=left or self.dropped,
            dropped=self.dropped if left else (),
            failed={**self.failed, name: reason},
        )


class Refiner:
    """Times plans of one model, once per database.

    Args:
        database: Keeps every sample.
        model_key: Hash of the model with its weights, input shapes and inputs.
        host: This machine.
        threads: CPU threads.
        tolerance: Largest error of a kernel; a plan that is wrong under one may be right under another.
        preset: How many rounds.
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
        fresh = document is None
        if document is None:
            document = self._time(chosen)
            self._database.put_plan(name, document)
        return _read(document, chosen, fresh)

    def _name(self, plans: Sequence[Plan]) -> str:
        what = {
            "plans": sorted(plan.key for plan in plans),
            "model": self._model_key,
            "host": self._host.fingerprint,
            "threads": self._threads,
            "tolerance": self._tolerance,
            "rounds": [self._preset.rounds, self._preset.round_s],
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
        first, reasons = self._rounds(packages, _FIRST_ROUNDS, "timing whole plans, first rounds")
        failed |= reasons
        kept = _kept(first, [plan.key for plan in plans if plan.single])
        final = {key: path for key, path in packages.items() if key in kept}
        rounds: dict[str, Rounds] = dict.fromkeys(final, ())
        for _ in range(_BATCHES):
            batch, reasons = self._rounds(final, self._preset.rounds, "timing whole plans")
            failed |= reasons
            final = {key: path for key, path in final.items() if key in batch}
            rounds = {key: rounds[key] + batch[key] for key in final}
            if _is_settled(rounds):
                break
        return {
            "schema_version": 1,
            "final": {key: [list(r) for r in answer] for key, answer in rounds.items()},
            "dropped": {key: [list(r) for r in answer] for key, answer in first.items() if key not in kept},
            "failed": failed,
        }

    def _rounds(self, packages: Mapping[str, Path], rounds: int, what: str) -> tuple[dict[str, Rounds], dict[str, str]]:
        """Samples of each contender, in processes that are new, and why others have none."""
        answers = self._interleaved(packages, rounds, what)
        failed = {key: answer.reason for key, answer in answers.items() if isinstance(answer, Failed)}
        return {key: answer for key, answer in answers.items() if not isinstance(answer, Failed)}, failed

    def _interleaved(self, packages: Mapping[str, Path], rounds: int, what: str) -> Mapping[str, Rounds | Failed]:
        self._progress.phase(what, rounds * len(packages))
        contenders = [package_contender(key, path, self._inputs(), self._threads) for key, path in packages.items()]
        return interleaved(
            contenders,
            rounds=rounds,
            burst_s=self._preset.round_s,
            progress=lambda done, total: self._progress.advance(),
        )


def _kept(first: Mapping[str, Rounds], singles: Sequence[str]) -> set[str]:
    """Contenders worth more rounds."""
    middle = {key: statistics.median(sample for each in rounds for sample in each) for key, rounds in first.items()}
    if not middle:
        return set()
    fastest = min(middle, key=lambda key: (middle[key], key))
    incumbents = sorted((middle[key], key) for key in singles if key in middle)
    close = {key for key in first if ratio_interval(first[key], first[fastest], seed=0).low <= _HOPELESS}
    return {key for _, key in incumbents[:1]} | close


def _is_settled(rounds: Mapping[str, Rounds]) -> bool:
    """Whether it is known of every contender if it is slower than the fastest, or that the difference is small."""
    if len(rounds) < 2:
        return True
    middle = {key: statistics.median(statistics.median(each) for each in answer) for key, answer in rounds.items()}
    fastest = min(middle, key=lambda key: (middle[key], key))
    for key in rounds:
        ratio = ratio_interval(rounds[key], rounds[fastest], seed=0)
        if key != fastest and ratio.low <= 1 <= ratio.high and ratio.high - ratio.low > 2 * _CLOSE:
            return False
    return True


def _read(document: Mapping[str, Any], plans: Sequence[Plan], fresh: bool) -> Refined:
    def timed(part: str) -> tuple[Timed, ...]:
        return tuple(
            Timed(
                name=plan.name,
                single=plan.single,
                kernels=len(plan.kernels),
                toolchains=len(plan.toolchains),
                rounds_us=tuple(tuple(each) for each in document[part][plan.key]),
            )
            for plan in plans
            if plan.key in document[part]
        )

    return Refined(
        timed=timed("final"),
        failed={plan.name: document["failed"][plan.key] for plan in plans if plan.key in document["failed"]},
        dropped=timed("dropped"),
        fresh=fresh,
    )
