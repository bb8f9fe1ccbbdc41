"""The `collage compare` command."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import (
    existing_file,
    input_shapes_option,
    inputs_option,
    is_verbose,
    json_option,
    reference_option,
    seed_option,
    verbose_option,
)
from collage.cli.options.parameters import FiniteRange, GivenShapes, check_overwriting, shapes_by_name
from collage.cli.output import results_console, write_json


@click.command(short_help="Check a package's numbers against the reference.")
@click.argument("model", type=existing_file)
@click.argument("package", type=existing_file)
@click.option(
    "--rtol",
    type=FiniteRange(min=0),
    metavar="REL",
    help="Largest error relative to a tensor's scale; for integers, the share of elements that may differ. "
    "Unless given, a few times what the plan showed when it was made.",
)
@click.option(
    "--atol",
    type=FiniteRange(min=0),
    default=1e-6,
    show_default=True,
    metavar="ABS",
    help="Absolute difference that always passes.",
)
@inputs_option
@input_shapes_option
@reference_option
@seed_option
@json_option
@verbose_option
@click.pass_context
def compare(
    ctx: click.Context,
    model: Path,
    package: Path,
    rtol: float | None,
    atol: float,
    inputs: Path | None,
    input_shapes: GivenShapes,
    reference: str | None,
    seed: int,
    json_to: Path | None,
) -> None:
    """Compare what PACKAGE computes with the reference of MODEL, at the outputs and between kernels.

    `--input-shapes` chooses the plan of a package that has several.

    Exits with 1 beyond the tolerance.
    """
    from collage.commands.compare import compare as compare_models
    from collage.report.documents.outputs import compare_json
    from collage.report.text.fact_tables import compare_summary, compare_verdict

    check_overwriting({"--json": json_to}, [model, package, inputs])
    shapes = shapes_by_name(input_shapes)
    report = compare_models(
        model, package, rtol=rtol, atol=atol, seed=seed, inputs=inputs, reference=reference, input_shapes=shapes
    )
    results_console(json_to).print(compare_summary(report, everything=is_verbose(ctx)))
    write_json(json_to, compare_json(report))
    if not report.passed:
        click.echo(f"Error: {compare_verdict(report)}", err=True)
        ctx.exit(1)
