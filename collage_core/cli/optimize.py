"""`collage optimize`."""

from __future__ import annotations

from pathlib import Path

import click

from collage_core.cli.options import (
    existing_file,
    inputs_option,
    is_verbose,
    json_option,
    measuring_options,
    reference_option,
    seed_option,
    selection_options,
    threads_option,
    tuning_db_option,
    verbose_option,
)
from collage_core.cli.output import results_console, shown_progress, write_json
from collage_core.cli.parameters import (
    FiniteRange,
    check_overwriting,
    duration,
    output_file,
    shapes_by_name,
    split_names,
)


@click.command(short_help="Search, measure, verify and save the fastest plan.")
@click.argument("model", type=existing_file)
@click.option("-o", "--output", type=output_file, required=True, metavar="OUT.collage", help="The package to write.")
@selection_options
@inputs_option
@click.option(
    "--preset",
    type=click.Choice(["quick", "default", "extensive"]),
    default="default",
    show_default=True,
    help="How much to try.",
)
@click.option("--budget", type=duration, metavar="TIME", help="Stop trying more after this long: 90s, 10m, 1h.")
@click.option(
    "--max-error",
    type=FiniteRange(min=0, max=1, min_open=True, max_open=True),
    metavar="REL",
    help="Allow targets of lower precision, up to this error relative to a tensor's scale.",
)
@tuning_db_option
@threads_option
@measuring_options
@click.option(
    "--rtol",
    type=FiniteRange(min=0, min_open=True),
    metavar="REL",
    help="Largest error of a kernel relative to its tensor's scale.",
)
@reference_option
@seed_option
@json_option
@verbose_option
@click.pass_context
def optimize(
    ctx: click.Context,
    model: Path,
    output: Path,
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: tuple[tuple[str, tuple[int, ...]], ...],
    inputs: Path | None,
    preset: str,
    budget: float | None,
    max_error: float | None,
    tuning_db: str | None,
    threads: int | None,
    warmup: int | None,
    iterations: int | None,
    duration: float | None,
    rtol: float | None,
    reference: str | None,
    seed: int,
    json_to: Path | None,
) -> None:
    """Search the fastest plan for MODEL, measure and verify it, and save it as a package."""
    from collage_core import pipeline
    from collage_core.database import database_file
    from collage_core.report.figures import size
    from collage_core.report.optimize_json import optimize_json
    from collage_core.report.tables import optimize_summary

    check_overwriting({"--output": output, "--json": json_to}, [model, inputs, database_file(tuning_db)])
    options = pipeline.OptimizeOptions(
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        inputs=inputs,
        preset=preset,
        budget_s=budget,
        max_error=max_error,
        tuning_db=tuning_db,
        threads=threads,
        seed=seed,
        rtol=rtol,
        reference=reference,
        warmup=warmup,
        iterations=iterations,
        duration_s=duration,
    )
    with shown_progress() as progress:
        optimized = pipeline.optimize(model, options, progress=progress)
        optimized.save(output)
    console = results_console(json_to)
    console.print(optimize_summary(optimized.record, everything=is_verbose(ctx)))
    console.print(f"saved {output} ({size(output.stat().st_size)}); why it is so: collage explain {output}")
    write_json(json_to, optimize_json(optimized.record))
