"""The `collage frontier` command."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import (
    calibration_option,
    existing_file,
    inputs_option,
    json_option,
    preset_option,
    ranges_option,
    seed_option,
    selection_options,
    threads_option,
    tuning_db_option,
)
from collage.cli.options.parameters import GivenShapes, check_overwriting, shapes_by_name, split_names
from collage.cli.output import results_console, shown_progress, write_json


def _bounds(text: str) -> tuple[float, ...]:
    """Parse a comma-separated list of bounds.

    Raises:
        ValueError: If one is not between 0 and 1.
    """
    found = tuple(float(part) for part in text.split(",") if part.strip())
    if not found or not all(0 < bound < 1 for bound in found):
        raise ValueError(f"{text!r} is not a list of numbers between 0 and 1, such as 1e-3,1e-2")
    return found


@click.command(short_help="Plans for several bounds on the error: latency against error.")
@click.argument("model", type=existing_file, metavar="MODEL")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where a package is written for each bound, with the table and the plot.",
)
@click.option(
    "--max-errors",
    type=_bounds,
    default="1e-3,3e-3,1e-2,3e-2,1e-1",
    show_default=True,
    metavar="REL,...",
    help="Bounds on the error of the outputs, relative to their scale.",
)
@click.option("--no-plot", is_flag=True, help="Write no picture (it needs matplotlib).")
@selection_options
@inputs_option
@calibration_option
@ranges_option
@preset_option
@tuning_db_option
@threads_option
@seed_option
@json_option
def frontier(
    model: Path,
    output: Path,
    max_errors: tuple[float, ...],
    no_plot: bool,
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    inputs: Path | None,
    calibration: Path | None,
    ranges: str,
    preset: str,
    tuning_db: str | None,
    threads: int | None,
    seed: int,
    json_to: Path | None,
) -> None:
    """Find the fastest plans of MODEL for several bounds on the error of its outputs, and show what each buys.

    FOLDER gets a package for each bound, frontier.json, and the plot as PNG and SVG. A run that was interrupted goes
    on where it ended.
    """
    from collage.commands.frontier import frontier as find_frontier
    from collage.options import OptimizeOptions
    from collage.report.documents.codec import to_json
    from collage.report.files import write_text
    from collage.report.text.frontier_plot import check_plotting, write_frontier
    from collage.report.text.frontier_table import frontier_summary
    from collage.store import database_file

    check_overwriting({"--json": json_to}, [model, inputs, calibration, database_file(tuning_db)])
    if json_to is not None and json_to.resolve().parent == output.resolve():
        raise click.UsageError(f"--json may not be in {str(output)!r}, which gets a frontier.json that says the same")
    if not no_plot:
        check_plotting()
    options = OptimizeOptions(
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        inputs=inputs,
        preset=preset,
        tuning_db=tuning_db,
        threads=threads,
        seed=seed,
    )
    with shown_progress() as progress:
        report = find_frontier(
            model, output, options, bounds=max_errors, calibration=calibration, ranges=ranges, progress=progress
        )
    write_text(output / "frontier.json", to_json(report))
    written = [output / "frontier.json", *([] if no_plot else write_frontier(output, report))]
    console = results_console(json_to)
    console.print(frontier_summary(report))
    console.print(f"saved {len(report.points)} packages and {', '.join(path.name for path in written)} in {output}")
    write_json(json_to, to_json(report))
