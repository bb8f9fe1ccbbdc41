"""`collage measure`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import (
    existing_file,
    inputs_option,
    json_option,
    measuring_options,
    preset_option,
    seed_option,
    selection_options,
    threads_option,
    tuning_db_option,
    verbose_option,
)
from collage.cli.options.parameters import (
    FiniteRange,
    GivenShapes,
    check_overwriting,
    duration,
    shapes_by_name,
    split_names,
)
from collage.cli.output import results_console, shown_progress, write_json


@click.command(short_help="Time one kernel of a model on several targets.")
@click.argument("model", type=existing_file)
@click.option(
    "--nodes",
    multiple=True,
    metavar="NAMES",
    help="Nodes of the prepared model, comma-separated: together they are the kernel. All of the model unless given.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Times each is measured.")
@selection_options
@inputs_option
@preset_option
@measuring_options
@click.option("--budget", type=duration, metavar="TIME", help="Time for the whole run, or a little more.")
@click.option(
    "--max-error",
    type=FiniteRange(min=0, max=1, min_open=True, max_open=True),
    metavar="REL",
    help="Measure targets of lower precision, too, that are off by at most this.",
)
@threads_option
@seed_option
@tuning_db_option
@json_option
@verbose_option
def measure(
    model: Path,
    nodes: tuple[str, ...],
    rounds: int,
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    inputs: Path | None,
    preset: str,
    duration: float | None,
    iterations: int | None,
    warmup: int | None,
    budget: float | None,
    max_error: float | None,
    threads: int | None,
    seed: int,
    tuning_db: str | None,
    json_to: Path | None,
) -> None:
    """Time a kernel of MODEL on every target that takes it, as searches do: built, checked, and timed in turns.

    Times are at the machine's usual speed, as a calibration kernel beside each block of samples tells it. Every sample
    is kept in the tuning database, where searches find it.
    """
    from collage.commands.measure import measure as measure_kernel
    from collage.options import OptimizeOptions
    from collage.report.documents.codec import to_json
    from collage.report.text.fact_tables import measure_summary
    from collage.store import database_file

    check_overwriting({"--json": json_to}, [model, inputs, database_file(tuning_db)])
    options = OptimizeOptions(
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        inputs=inputs,
        preset=preset,
        duration_s=duration,
        iterations=iterations,
        warmup=warmup,
        budget_s=budget,
        max_error=max_error,
        threads=threads,
        seed=seed,
        tuning_db=tuning_db,
    )
    with shown_progress() as progress:
        report = measure_kernel(model, split_names(nodes), options, rounds=rounds, progress=progress)
    results_console(json_to).print(measure_summary(report))
    write_json(json_to, to_json(report))
