"""`collage optimize`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from collage.cli.options.common import (
    calibration_option,
    existing_file,
    inputs_option,
    is_verbose,
    json_option,
    measuring_options,
    preferring_options,
    preset_option,
    ranges_option,
    reference_option,
    runner_option,
    seed_option,
    selection_options,
    split_hosts_option,
    threads_option,
    tuning_db_option,
    verbose_option,
)
from collage.cli.options.given_files import given_files
from collage.cli.options.parameters import (
    MOST_BUCKETS,
    FiniteRange,
    GivenShapes,
    check_overwriting,
    duration,
    output_file,
    shape_sets,
    split_names,
)
from collage.cli.output import results_console, shown_progress, write_json


@click.command(short_help="Search, measure, verify and save the fastest plan.")
@click.argument("model", type=existing_file)
@click.option("-o", "--output", type=output_file, required=True, metavar="OUT.collage", help="The package to write.")
@selection_options
@inputs_option
@calibration_option
@ranges_option
@preset_option
@click.option(
    "--search",
    type=click.Choice(["lazy", "exact", "two-level", "ilp"]),
    default="lazy",
    show_default=True,
    help="Measure what best plans lack; all that the preset says; lazily, then change whole plans; or exact, "
    "certified by an integer program.",
)
@click.option(
    "--trace",
    type=output_file,
    metavar="FILE.json",
    help="Write every plan that --search two-level timed, and a picture of it beside (.svg).",
)
@click.option("--budget", type=duration, metavar="TIME", help="Time for the whole run, or a little more: 90s, 10m, 1h.")
@click.option(
    "--max-error",
    type=FiniteRange(min=0, max=1, min_open=True, max_open=True),
    metavar="REL",
    help="Allow lower precision, as long as the outputs are off by at most this, relative to their scale.",
)
@click.option(
    "--metric",
    metavar="FILE.py:FUNCTION",
    help="Allow lower precision, as long as what this function of yours says of the outputs drops by --max-drop at "
    "most (docs/user/user-control.md).",
)
@click.option(
    "--max-drop", type=FiniteRange(min=0), metavar="NUMBER", help="Largest drop of --metric, in the metric's own unit."
)
@click.option(
    "--labelled",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE.npz|FOLDER",
    help="Samples for --metric: the inputs, and arrays of other names, such as labels.",
)
@tuning_db_option
@runner_option
@split_hosts_option
@threads_option
@measuring_options
@click.option(
    "--rtol",
    type=FiniteRange(min=0, min_open=True),
    metavar="REL",
    help="Largest error of a kernel relative to its tensor's scale.",
)
@reference_option
@click.option(
    "--deterministic",
    is_flag=True,
    help="Only kernels that give the same bits for the same inputs, each time they run.",
)
@click.option(
    "--buckets",
    type=click.IntRange(1, MOST_BUCKETS),
    default=1,
    metavar="N",
    help="Find a plan for N typical sizes of a range of --input-shapes, and keep those that differ.",
)
@preferring_options
@click.option(
    "--save-plan",
    type=output_file,
    metavar="FILE.json",
    help="Write the plan and the cost of every candidate, to be read, edited and loaded (docs/user/user-control.md).",
)
@click.option(
    "--load-plan", type=existing_file, metavar="FILE.json", help="Build, check and save this plan; search nothing."
)
@click.option(
    "--percentile",
    type=click.FloatRange(0, 100, min_open=True, max_open=True),
    default=50.0,
    show_default=True,
    metavar="P",
    help="Which of the latencies counts: 50 for the plan that is usually the fastest, 90 for one that is seldom slow.",
)
@seed_option
@click.option(
    "--report", type=output_file, metavar="FILE.html", help="Write a page about the plan; see `collage report`."
)
@click.option("--anew", is_flag=True, help="Optimize also if OUT is what the same optimization made last.")
@click.option(
    "--retry-failed", is_flag=True, help="Try again what the tuning database remembers as failed, whatever the cause."
)
@json_option
@verbose_option
@click.pass_context
def optimize(
    ctx: click.Context,
    model: Path,
    output: Path,
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    buckets: int,
    inputs: Path | None,
    calibration: Path | None,
    ranges: str,
    preset: str,
    search: str,
    trace: Path | None,
    budget: float | None,
    max_error: float | None,
    metric: str | None,
    max_drop: float | None,
    labelled: Path | None,
    tuning_db: str | None,
    runner: str | None,
    split_hosts: bool | None,
    threads: int | None,
    warmup: int | None,
    iterations: int | None,
    percentile: float,
    duration: float | None,
    rtol: float | None,
    reference: str | None,
    deterministic: bool,
    pins: tuple[str, ...],
    prefer: str | None,
    save_plan: Path | None,
    load_plan: Path | None,
    seed: int,
    report: Path | None,
    anew: bool,
    retry_failed: bool,
    json_to: Path | None,
) -> None:
    """Search the fastest plan for MODEL, measure and verify it, and save it as a package."""
    from collage.commands.optimizing.possible_shapes import possible_shapes
    from collage.commands.optimizing.up_to_date import up_to_date
    from collage.options import OptimizeOptions
    from collage.report.documents.outputs import plans_json
    from collage.report.figures import size
    from collage.report.text.shapes_summary import shapes_summary
    from collage.report.text.tables import optimize_summary
    from collage.report.text.trace_plot import PICTURE
    from collage.store import database_file

    if trace is not None and search != "two-level":
        raise click.UsageError("--trace is of --search two-level; other searches have none")
    if report is not None:
        from collage.commands.report import check_report

        check_report()  # before the search, not after it
    picture = None if trace is None else trace.with_suffix(PICTURE)
    check_overwriting(
        {
            "--output": output,
            "--json": json_to,
            "--report": report,
            "--save-plan": save_plan,
            "--trace": trace,
            "the picture of --trace": picture,
        },
        [model, inputs, database_file(tuning_db), load_plan, *given_files(metric, calibration, labelled)],
    )
    options: dict[str, Any] = {
        "toolchains": toolchains,
        "exclude": split_names(exclude),
        "inputs": inputs,
        "calibration": calibration,
        "ranges": ranges,
        "preset": preset,
        "search": search,
        "budget_s": budget,
        "max_error": max_error,
        "metric": metric,
        "max_drop": max_drop,
        "labelled": labelled,
        "tuning_db": tuning_db,
        "runner": runner,
        "split_hosts": split_hosts,
        "threads": threads,
        "seed": seed,
        "rtol": rtol,
        "reference": reference,
        "deterministic": deterministic,
        "warmup": warmup,
        "iterations": iterations,
        "percentile": percentile,
        "duration_s": duration,
        "pins": pins,
        "prefer": prefer,
        "load_plan": load_plan,
        "retry_failed": retry_failed,
    }
    tell = functools.partial(click.echo, err=True)
    possible = possible_shapes(model, shape_sets(input_shapes), tell, buckets=buckets)
    each = [OptimizeOptions(input_shapes=shapes, **options) for shapes in possible]
    if len(each) > 1 and (save_plan is not None or trace is not None):
        raise click.UsageError("--save-plan and --trace are of one plan, and --input-shapes asks for several")
    only_the_package = save_plan is None and trace is None
    found = up_to_date(model, each, output) if only_the_package and not anew else None
    if found is None:
        from collage.commands.optimizing.to_package import optimize_to

        with shown_progress() as progress:
            records = optimize_to(output, model, each, progress, save_plan=save_plan, trace=trace)
        done = "saved"
    else:
        records = found.records
        how = "kept" if found.copied_from is None else f"copied from {found.copied_from}:"
        done = f"optimized on {records[0].created}, and nothing has changed (--anew does it again): {how}"
    console = results_console(json_to)
    if len(records) == 1:
        console.print(optimize_summary(records[0], everything=is_verbose(ctx)))
    else:
        console.print(shapes_summary(records))
    console.print(f"{done} {output} ({size(output.stat().st_size)}); why it is so: collage explain {output}")
    write_json(json_to, plans_json(records))
    if report is not None:
        from collage.commands.report import report as write_report

        write_report(output, report)
        console.print(f"saved {report}; open it in a browser")
