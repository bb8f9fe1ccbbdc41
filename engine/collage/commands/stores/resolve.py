"""`resolve`: find the best plan of a model for a machine from what a store has of it, without its toolchains."""

from __future__ import annotations

import functools
import os

import onnx_ir

from collage.command_start import command_began
from collage.measure.budget import Budget
from collage.measure.models.preparing import prepared_apart
from collage.options import OptimizeOptions
from collage.report.progress import Progress, SilentProgress
from collage.resolve.resolved import Resolved
from collage.resolve.resolving import resolve_on
from collage.resolve.saved_machine import machine_named
from collage.setup.workload import Workload
from collage.store import open_database
from collage_core.errors import UsageError


def resolve(
    model: str | os.PathLike[str] | onnx_ir.Model,
    options: OptimizeOptions | None = None,
    *,
    host: str | None = None,
    progress: Progress | None = None,
) -> Resolved:
    """Find the best plan of a model for a machine, from what the tuning database has of both.

    Neither the toolchains nor their plugins have to be installed here: nothing is measured, built or run.

    Args:
        model: An ONNX file, or a model in memory, as it was optimized there.
        options: As for `optimize`; which toolchains, shapes, preset and database.
        host: Fingerprint of the machine, or a part of it that no other has; the only one known if None.
        progress: Receives progress updates.

    Raises:
        UsageError: If an error is allowed, or the database knows too little.
        CollageError: If the model cannot be used.
    """
    options = options or OptimizeOptions()
    progress = progress or SilentProgress()
    _check(options)
    budget = Budget.begin(options.budget_s, began=command_began())
    try:
        with open_database(options.tuning_db, read_only=True) as store:
            machine = machine_named(store, host)
            progress.phase("preparing the model")
            workload = Workload(
                model,
                input_shapes=options.input_shapes,
                inputs=options.inputs,
                calibration=options.calibration,
                seed=options.seed,
                prepare=functools.partial(prepared_apart, budget=budget),
            )
            return resolve_on(store, machine, workload, options, progress)
    finally:
        progress.done()


def _check(options: OptimizeOptions) -> None:
    """Refuse options that ask for what a store cannot know.

    Raises:
        UsageError: If there is one.
    """
    if options.error_allowed is not None:
        raise UsageError("errors of lower precision are found by running kernels: optimize with that bound there")
    if options.search == "two-level":
        raise UsageError("two-level search runs whole plans: optimize with it there")
    if options.load_plan is not None or options.fusion_specs or options.runner is not None:
        raise UsageError("a plan file, rules of your own and a runner are for optimize")
