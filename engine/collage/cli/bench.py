"""The `collage bench` command."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import (
    existing_file,
    inputs_option,
    json_option,
    measuring_options,
    seed_option,
    selection_options,
    threads_option,
    verbose_option,
)
from collage.cli.options.parameters import GivenShapes, check_overwriting, shapes_by_name, split_names
from collage.cli.output import results_console, shown_progress, write_json


@click.command(short_help="Time models and packages side by side.")
@click.argument("paths", type=existing_file, nargs=-1, required=True, metavar="MODEL|PACKAGE...")
@click.option("--compare", is_flag=True, help="Every single toolchain that can run the model takes part, too.")
@click.option(
    "--plan",
    "plans",
    type=existing_file,
    multiple=True,
    metavar="FILE.json",
    help="Add a plan of your own and report the loss against it (docs/user/user-control.md). Repeat for several.",
)
@selection_options
@inputs_option
@threads_option
@click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="Rounds in which contenders take turns.")
@measuring_options
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Time N sessions side by side, too, each with as many threads as --threads says: runs per second.",
)
@seed_option
@json_option
@verbose_option
@click.pass_context
def bench(
    ctx: click.Context,
    paths: tuple[Path, ...],
    compare: bool,
    plans: tuple[Path, ...],
    toolchains: str | None,
    exclude: tuple[str, ...],
    input_shapes: GivenShapes,
    inputs: Path | None,
    threads: int | None,
    rounds: int | None,
    warmup: int | None,
    iterations: int | None,
    duration: float | None,
    streams: int,
    seed: int,
    json_to: Path | None,
) -> None:
    """Time models and packages side by side, each in a separate process, interleaved.

    Exits with 1 if nothing could be timed.
    """
    from collage.commands.bench import bench as time_models
    from collage.options import BenchOptions
    from collage.report.documents.codec import to_json
    from collage.report.text.fact_tables import bench_summary

    check_overwriting({"--json": json_to}, [*paths, *plans, inputs])
    defaults = BenchOptions()
    options = BenchOptions(
        compare=compare,
        threads=threads,
        warmup=defaults.warmup if warmup is None else warmup,
        iterations=defaults.iterations if iterations is None else iterations,
        duration_s=defaults.duration_s if duration is None else duration,
        rounds=defaults.rounds if rounds is None else rounds,
        toolchains=toolchains,
        exclude=split_names(exclude),
        input_shapes=shapes_by_name(input_shapes),
        inputs=inputs,
        seed=seed,
        plans=plans,
        streams=streams,
    )
    with shown_progress() as progress:
        report = time_models(paths, options, progress=progress)
    results_console(json_to).print(bench_summary(report))
    write_json(json_to, to_json(report))
    if all(contender.latency_ms is None for contender in report.comparison.contenders):
        click.echo("Error: no contender could be timed; the table says why.", err=True)
        ctx.exit(1)
