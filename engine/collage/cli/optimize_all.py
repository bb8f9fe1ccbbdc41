"""`collage optimize-all`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import (
    json_option,
    preset_option,
    seed_option,
    selection_options,
    threads_option,
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


@click.command(name="optimize-all", short_help="Optimize many models, on machines of several kinds.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where packages go: MACHINE/MODEL.collage.",
)
@click.option(
    "--runner",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Who has the machines: this one, or such as ray://HOST:10001 (docs/user/fleet.md).",
)
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="PART",
    help="Only machines whose fingerprint has this part; repeat.",
)
@selection_options
@preset_option
@click.option(
    "--search",
    type=click.Choice(["lazy", "exact", "two-level", "ilp"]),
    default="lazy",
    show_default=True,
    help="As for `collage optimize`.",
)
@click.option("--budget", type=duration, metavar="TIME", help="Time for each model, or a little more: 90s, 10m, 1h.")
@click.option(
    "--max-error",
    type=FiniteRange(min=0, max=1, min_open=True, max_open=True),
    metavar="REL",
    help="Allow lower precision, as long as the outputs are off by at most this, relative to their scale.",
)
@threads_option
@seed_option
@json_option
@verbose_option
@click.pass_context
def optimize_all(
    ctx: click.Context,
    folder: Path,
    output: Path,
    runner: str,
    machines: tuple[str, ...],
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    preset: str,
    search: str,
    budget: float | None,
    max_error: float | None,
    threads: int | None,
    seed: int,
    json_to: Path | None,
) -> None:
    """Optimize each ONNX model in FOLDER on each kind of machine that a runner has.

    A package is written as soon as it is made. Run it again to go on where it was ended: packages of the same models,
    options and libraries are kept. The command ends with status 1 if a model has no package somewhere.
    """
    from collage.commands.optimizing.optimize_all import models_in
    from collage.commands.optimizing.optimize_all import optimize_all as optimize_models
    from collage.options import OptimizeOptions
    from collage.report.documents.codec import to_json
    from collage.report.text.fact_tables import batch_summary

    check_overwriting({"--json": json_to}, models_in(folder))
    options = OptimizeOptions(
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        preset=preset,
        search=search,
        budget_s=budget,
        max_error=max_error,
        threads=threads,
        seed=seed,
    )
    with shown_progress() as progress:
        report = optimize_models(folder, output, options, runner=runner, machines=machines, progress=progress)
    results_console(json_to).print(batch_summary(report))
    write_json(json_to, to_json(report))
    if report.failed:
        ctx.exit(1)
