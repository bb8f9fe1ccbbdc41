"""`frontier`: what latency each bound on the error buys, from one tuning database."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from collage.commands.optimize import optimize
from collage.commands.optimizing.up_to_date import remember, up_to_date
from collage.decide.contenders import package_contender
from collage.decide.recording import latency_facts
from collage.measure.contenders.interleaved import Rounds, interleaved
from collage.measure.statistics import ratio_interval
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed
from collage.options import OptimizeOptions
from collage.report.facts.frontier_facts import FrontierPoint, FrontierReport, with_best_marked
from collage.report.facts.record import Record
from collage.report.progress import Progress, SilentProgress
from collage.setup.inputs.calibration import Calibration
from collage.setup.workload import Workload
from collage.temporary_folders import TemporaryFolder
from collage_core.errors import UsageError
from collage_core.registry import Registry

BOUNDS: Final = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Bounds on the error that are looked at unless others are named."""
_ROUNDS: Final = 30
_ROUND_S: Final = 0.1


def frontier(
    model: Path,
    folder: Path,
    options: OptimizeOptions | None = None,
    *,
    bounds: Sequence[float] = BOUNDS,
    calibration: Calibration | None = None,
    ranges: str = "minmax",
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> FrontierReport:
    """Find the fastest plan of a model for each of several bounds on the error, and time them in rounds.

    What was done for a bound is not done again where nothing has changed, so a run that was interrupted goes on.

    Args:
        model: The ONNX file.
        folder: Where a package is written for each bound; made if it is missing.
        options: What is the same for all bounds; the defaults if None.
        bounds: Largest errors, relative to the scale of an output.
        calibration: See `OptimizeOptions.calibration`.
        ranges: See `OptimizeOptions.ranges`.
        progress: Receives progress updates.
        registry: The toolchains; those installed if None.

    Raises:
        UsageError: If a bound is not between 0 and 1, or the options have one.
        CollageError: If the model cannot be optimized for a bound.
    """
    options, progress = options or OptimizeOptions(), progress or SilentProgress()
    if options.error_allowed is not None:
        raise UsageError("a frontier has bounds of its own, so its options have no max_error and no metric")
    if calibration is not None and not isinstance(calibration, str | os.PathLike):
        calibration = list(calibration)
    wanted: list[tuple[float | None, OptimizeOptions]] = [(None, options)]
    wanted += [
        (bound, dataclasses.replace(options, max_error=bound, calibration=calibration, ranges=ranges))
        for bound in sorted({*bounds})
    ]
    folder.mkdir(parents=True, exist_ok=True)
    records: dict[Path, tuple[float | None, Record]] = {}
    for bound, each in wanted:
        progress.message("in the model's own types" if bound is None else f"with an error of at most {bound:g}")
        package = folder / f"{file_name(bound)}.collage"
        records[package] = bound, _optimized(model, package, each, progress, registry)
    first = next(iter(records.values()))[1]
    timed = _timed(model, list(records), first.threads, options, progress)
    points = [_point(package, bound, record, timed) for package, (bound, record) in records.items()]
    return FrontierReport(
        model=first.model,
        host=first.host,
        threads=first.threads,
        points=with_best_marked(tuple(points)),
        notes=tuple(dict.fromkeys(note for _, record in records.values() for note in record.notes)),
    )


def file_name(bound: float | None) -> str:
    """Return the name of a bound's package, without suffix.

    Examples:
        >>> file_name(None), file_name(0.003)
        ('own-types', 'max-error-0.003')
    """
    return "own-types" if bound is None else f"max-error-{bound!r}"


def _optimized(
    model: Path, package: Path, options: OptimizeOptions, progress: Progress, registry: Registry | None
) -> Record:
    known = up_to_date(model, [options], package) if registry is None else None
    if known is not None:
        return known.records[0]
    optimized = optimize(model, options, progress=progress, registry=registry)
    optimized.save(package)
    if optimized.origin is not None:
        remember([optimized.origin], package, [optimized.record], options.tuning_db)
    return optimized.record


def _timed(
    model: Path, packages: Sequence[Path], threads: int, options: OptimizeOptions, progress: Progress
) -> Mapping[str, Rounds | Failed]:
    """Time packages in rounds with one another, each in a process of its own."""
    workload = Workload(model, input_shapes=options.input_shapes, inputs=options.inputs, seed=options.seed)
    with TemporaryFolder() as folder:
        inputs = [workload.inputs_document(folder, BlobStore(folder))]
        contenders = [package_contender(path.name, path, inputs, threads, built_here=True) for path in packages]
        progress.phase("timing the plans", _ROUNDS * len(contenders))
        try:
            return interleaved(
                contenders,
                rounds=_ROUNDS,
                burst_s=_ROUND_S,
                progress=lambda done, total: progress.advance(),
            )
        finally:
            progress.done()


def _point(package: Path, bound: float | None, record: Record, timed: Mapping[str, Rounds | Failed]) -> FrontierPoint:
    answer, plain = timed[package.name], timed[f"{file_name(None)}.collage"]
    point = FrontierPoint(
        max_error=bound,
        error=record.max_error,
        package=package.name,
        targets=tuple(sorted({region.target for region in record.regions})),
        kernels=len(record.regions),
        int8=sum(len(region.precision.int8) for region in record.regions if region.precision is not None),
    )
    if isinstance(answer, Failed):
        return dataclasses.replace(point, failed=answer.reason)
    point = dataclasses.replace(point, latency_ms=latency_facts(answer))
    if isinstance(plain, Failed):
        return point
    ratio = ratio_interval(answer, plain, seed=0)
    return dataclasses.replace(point, ratio=ratio.value, ratio_ci95=(ratio.low, ratio.high))
