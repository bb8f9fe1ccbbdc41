"""Optimize a model and save what comes of it, as `collage optimize` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collage.commands.optimize import optimize
from collage.commands.optimizing.several_shapes import optimize_shapes
from collage.commands.optimizing.up_to_date import remember
from collage.options import OptimizeOptions
from collage.report.facts.record import Record
from collage.report.progress import Progress
from collage.report.text.trace_plot import write_trace


def optimize_to(
    output: Path,
    model: Path,
    each: Sequence[OptimizeOptions],
    progress: Progress,
    *,
    save_plan: Path | None = None,
    trace: Path | None = None,
) -> tuple[Record, ...]:
    """Find the plans of a model, save the package, and note that it is up to date; return the records.

    Args:
        output: The package to write.
        model: The ONNX file.
        each: What to do, for each set of input shapes.
        progress: Receives progress updates.
        save_plan: Plan file to write; of one set of shapes only.
        trace: Trace of a two-level search to write, likewise.

    Raises:
        CollageError: As `optimize` and `optimize_shapes` do.
        OSError: If another file than the package cannot be written.
    """
    if len(each) > 1:
        several = optimize_shapes(model, each, progress=progress)
        several.save(output)
        records, origins = several.records, several.origins
    else:
        optimized = optimize(model, each[0], progress=progress)
        optimized.save(output)
        if save_plan is not None:
            optimized.save_plan(save_plan)
        if trace is not None and optimized.trace is not None:
            write_trace(trace, optimized.trace, title=model.name)
        records, origins = (optimized.record,), (optimized.origin,) if optimized.origin is not None else ()
    if origins:
        remember(origins, output, records, each[0].tuning_db)
    return records
