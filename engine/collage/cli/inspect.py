"""`collage inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import existing_file, is_verbose, json_option, selection_options, verbose_option
from collage.cli.options.parameters import GivenShapes, check_overwriting, duration, shapes_by_name, split_names
from collage.cli.output import results_console, write_json


@click.command(short_help="Show what each toolchain would take of a model.")
@click.argument("model", type=existing_file)
@selection_options
@click.option(
    "--budget", type=duration, default="20s", show_default=True, metavar="TIME", help="Give up after about this long."
)
@json_option
@verbose_option
@click.pass_context
def inspect(
    ctx: click.Context,
    model: Path,
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    budget: float,
    json_to: Path | None,
) -> None:
    """Show what each toolchain would take of MODEL and what it refuses; measures nothing."""
    from collage.commands.inspect import inspect as inspect_model
    from collage.options import OptimizeOptions
    from collage.report.documents.codec import to_json
    from collage.report.text.fact_tables import inspect_summary

    check_overwriting({"--json": json_to}, [model])
    options = OptimizeOptions(
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        budget_s=budget,
    )
    report = inspect_model(model, options)
    results_console(json_to).print(inspect_summary(report, everything=is_verbose(ctx)))
    write_json(json_to, to_json(report))
