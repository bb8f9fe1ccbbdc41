"""`collage resolve`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import (
    existing_file,
    inputs_option,
    json_option,
    measuring_options,
    preferring_options,
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
    output_file,
    shapes_by_name,
    split_names,
)
from collage.cli.output import results_console, shown_progress, write_json


@click.command(short_help="Find a plan for another machine by what a database knows of it.")
@click.argument("model", type=existing_file)
@click.option(
    "--host",
    metavar="NAME",
    help="The machine: its fingerprint, or a part of it that no other has; the only one known unless given.",
)
@click.option("-o", "--output", type=output_file, metavar="PLAN.json", help="Write the plan, for --load-plan there.")
@selection_options
@inputs_option
@preset_option
@click.option(
    "--search",
    type=click.Choice(["lazy", "exact", "ilp"]),
    default="lazy",
    show_default=True,
    help="As for `collage optimize`.",
)
@click.option("--budget", type=duration, metavar="TIME", help="The budget that it was optimized with.")
@measuring_options
@click.option(
    "--rtol",
    type=FiniteRange(min=0, min_open=True),
    metavar="REL",
    help="Largest error of a kernel relative to its tensor's scale.",
)
@click.option("--deterministic", is_flag=True, help="Only kernels that give the same bits each time they run.")
@click.option(
    "--percentile",
    type=click.FloatRange(0, 100, min_open=True, max_open=True),
    default=50.0,
    show_default=True,
    metavar="P",
    help="Which of the latencies counts.",
)
@preferring_options
@threads_option
@seed_option
@tuning_db_option
@json_option
@verbose_option
def resolve(
    model: Path,
    host: str | None,
    output: Path | None,
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    inputs: Path | None,
    preset: str,
    search: str,
    budget: float | None,
    duration: float | None,
    iterations: int | None,
    warmup: int | None,
    rtol: float | None,
    deterministic: bool,
    percentile: float,
    pins: tuple[str, ...],
    prefer: str | None,
    threads: int | None,
    seed: int,
    tuning_db: str | None,
    json_to: Path | None,
) -> None:
    """Find the best plan of MODEL for a machine on which it was optimized, with all toolchains or some of them.

    Nothing is measured or built, and no toolchain has to be installed here. Give the options that it was optimized
    with: what they decide is part of what the database knows.
    """
    from collage.commands.stores.resolve import resolve as resolve_model
    from collage.options import OptimizeOptions
    from collage.report.documents.codec import to_json
    from collage.report.text.fact_tables import resolve_summary
    from collage.store import database_file

    check_overwriting({"--output": output, "--json": json_to}, [model, inputs, database_file(tuning_db)])
    options = OptimizeOptions(
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        inputs=inputs,
        preset=preset,
        search=search,
        budget_s=budget,
        duration_s=duration,
        iterations=iterations,
        warmup=warmup,
        rtol=rtol,
        deterministic=deterministic,
        percentile=percentile,
        pins=pins,
        prefer=prefer,
        threads=threads,
        seed=seed,
        tuning_db=tuning_db,
    )
    with shown_progress() as progress:
        found = resolve_model(model, options, host=host, progress=progress)
    if output is not None:
        found.save_plan(output)
    results_console(json_to).print(resolve_summary(found.report))
    write_json(json_to, to_json(found.report))
