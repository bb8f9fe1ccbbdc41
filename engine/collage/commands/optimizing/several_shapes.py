"""`optimize` for several input shapes: a plan for each, in one package."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir
from rich.console import RenderableType

from collage.command_start import command_began
from collage.commands.optimize import optimize
from collage.commands.optimizing.beside_each_other import beside_each_other
from collage.commands.optimizing.buckets import merged, plan_of_record
from collage.commands.optimizing.optimized import trusted_as_written
from collage.options import OptimizeOptions
from collage.report.facts.record import Record
from collage.report.progress import Progress, SilentProgress
from collage.report.shown import Shown
from collage.report.text.shapes_summary import shapes_summary
from collage.runtime.load import load
from collage.runtime.package import join_packages, load_package
from collage.runtime.package.plan import described
from collage.runtime.session import Session
from collage.temporary_folders import TemporaryFolder
from collage_core.errors import UsageError
from collage_core.ir.values.size_range import Shape
from collage_core.registry import Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizedShapes(Shown):
    """Plans for several input shapes, each in a package in a temporary folder until they are saved as one.

    Attributes:
        records: Record of each plan that is kept, in the order of the shapes.
        packages: Their packages.
        shapes: The shapes that each is for: of a plan for a part of a range not those that its package says.
        origins: Hash of what decided each outcome; empty where that is not known of all.
    """

    records: tuple[Record, ...]
    packages: tuple[Path, ...]
    shapes: tuple[Mapping[str, Shape], ...]
    origins: tuple[str, ...]
    _folder: TemporaryFolder = dataclasses.field(repr=False)

    def __rich__(self) -> RenderableType:
        """Return the tables of `collage optimize`."""
        return shapes_summary(self.records)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one package atomically, and remember that it was written on this machine: its code may be loaded here.

        Raises:
            PackageError: If it cannot be written.
        """
        trusted_as_written(self._save(path), path)

    def _save(self, path: str | os.PathLike[str]) -> str:
        return join_packages(path, [load_package(each) for each in self.packages], self.shapes)

    def session(self) -> Session:
        """Return a session that runs the plans in this process."""
        joined = self._folder.path / "session.collage"
        self._save(joined)
        try:
            return load(joined, trusted=True)
        finally:
            joined.unlink()


def optimize_shapes(
    model: str | os.PathLike[str] | onnx_ir.Model,
    each: Sequence[OptimizeOptions],
    *,
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> OptimizedShapes:
    """Find the fastest plan of a model for each set of input shapes.

    One tuning database serves all, so what has the same structure for several shapes is measured once. A budget is for
    all of them together.

    Args:
        model: An ONNX file, or a model in memory.
        each: What to do, for each of the `possible_shapes`; only these differ.
        progress: Receives progress updates.
        registry: The toolchains; those installed if None.

    Raises:
        UsageError: If an option is given that is of one shape only.
        CollageError: As `optimize` does, for any of the shapes.
    """
    progress = progress or SilentProgress()
    if len(each) > 1:
        _check_options(each[0])
    folder, began = TemporaryFolder(), time.monotonic()
    records, packages, origins = [], [], []
    for number, options in enumerate(beside_each_other(each)):
        if len(each) > 1:
            progress.message(f"shapes {number + 1} of {len(each)}: {described(options.input_shapes)}")
        budget_s = _share_s(options.budget_s, began, len(each) - number)
        own = dataclasses.replace(options, budget_s=budget_s)
        optimized = optimize(model, own, progress=progress, registry=registry)
        packages.append(folder.path / f"{number}.collage")
        optimized.write(packages[-1])
        records.append(optimized.record)
        origins.append(optimized.origin)
    known = tuple(origin for origin in origins if origin is not None)
    # a symbol that one input has a size of may be in the shapes of others, too
    whole = [record.model.input_shapes for record in records]
    buckets = merged(whole, [plan_of_record(record) for record in records])
    if len(buckets) < len(each):
        progress.message(f"{len(each)} typical sizes have {len(buckets)} different plans; equal ones are one")
    return OptimizedShapes(
        records=tuple(of_shapes(records[bucket.number], bucket.shapes) for bucket in buckets),
        packages=tuple(packages[bucket.number] for bucket in buckets),
        shapes=tuple(bucket.shapes for bucket in buckets),
        origins=known if len(known) == len(origins) else (),
        _folder=folder,
    )


def of_shapes(record: Record, shapes: Mapping[str, Shape]) -> Record:
    """Return a record of a plan that is for these shapes, of those that it was found for."""
    if record.model.input_shapes == shapes:
        return record
    return dataclasses.replace(record, model=dataclasses.replace(record.model, input_shapes=dict(shapes)))


def _check_options(options: OptimizeOptions) -> None:
    """Refuse options whose values are of one shape."""
    given = {
        "--inputs": options.inputs,
        "--calibration": options.calibration,
        "--labelled": options.labelled,
        "--load-plan": options.load_plan,
    }
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is of one shape, and --input-shapes gives several: optimize each by itself")


def _share_s(budget_s: float | None, began: float, left: int) -> float | None:
    """Return the budget of the next of some runs; each counts from the start of the command, or else from its own."""
    if budget_s is None:
        return None
    command = command_began()
    spent_s = time.monotonic() - (began if command is None else command)
    return (0.0 if command is None else spent_s) + max(0.001, budget_s - spent_s) / left
