"""`collage run`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from collage.cli.arrays import random_arrays, read_values, write_values
from collage.cli.options.common import (
    existing_file,
    inputs_option,
    json_option,
    seed_option,
    verbose_option,
)
from collage.cli.options.parameters import check_overwriting, output_file
from collage.cli.output import results_console, write_json


@click.command(short_help="Run a package once.")
@click.argument("package", type=existing_file)
@inputs_option
@click.option("--save-outputs", type=output_file, metavar="FILE.npz", help="Write an array per output.")
@click.option(
    "--profile",
    "trace_to",
    type=output_file,
    metavar="TRACE.json",
    help="Time every kernel in place; write a trace for chrome://tracing or Perfetto.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Compare outputs with the reference first, on the inputs given or random ones: with other threads than the "
    "package was made with, its numbers are not known to be right.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse a package of which a kernel does not load here, instead of running another in its place.",
)
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads; the package's unless given.")
@seed_option
@json_option
@verbose_option
def run(
    package: Path,
    inputs: Path | None,
    save_outputs: Path | None,
    trace_to: Path | None,
    verify: bool,
    strict: bool,
    threads: int | None,
    seed: int,
    json_to: Path | None,
) -> None:
    """Run PACKAGE once.

    In NPZ files, strings are arrays of text, the members of a sequence s are s[0], s[1] and so on (s[] if it has none),
    an optional value that is absent is left out, and bfloat16 and other types NumPy has not are float32 or int8.
    """
    from collage.commands.load import load
    from collage.report.documents.codec import to_json
    from collage.report.facts.device_facts import describe_work
    from collage.report.facts.run_facts import RunReport, describe_outputs, describe_profile
    from collage.report.files import write_text
    from collage.report.text.fact_tables import run_summary
    from collage.runtime.shapes.choosing_session import ChoosingSession
    from collage.runtime.shapes.shaped_session import ShapedSession

    written = {"--save-outputs": save_outputs, "--profile": trace_to, "--json": json_to}
    check_overwriting(written, [package, inputs])
    notes: list[str] = []
    verifying = (inputs or True) if verify else False
    session = load(package, threads=threads, verify=verifying, strict=strict, tell=notes.append)
    arguments = session.get_inputs()
    if inputs is None:
        # of several plans the first, and of its sizes the typical ones: random values have some shape
        first = session
        while isinstance(first, ChoosingSession):
            first = first.current
        feeds = random_arrays(first.get_inputs(), seed)
    else:
        feeds = read_values(inputs, arguments)
    one = session
    if isinstance(session, ShapedSession):
        one = session.session_for(feeds)
        notes.append(f"of {len(session.sessions)} plans, the one for {session.described(one)} ran")
    names = [output.name for output in one.get_outputs()]
    outputs = dict(zip(names, one.run(None, feeds), strict=True))
    profile = one.profile(feeds) if trace_to is not None else None
    report = RunReport(
        package=package.name,
        seed=seed if inputs is None else None,
        outputs=describe_outputs(outputs),
        steps=describe_profile(profile) if profile is not None else (),
        device_work=describe_work(one.device_work()),
        notes=tuple(notes),
        substitutes=session.report().substitutes,
    )
    console = results_console(json_to)
    console.print(run_summary(report))
    if save_outputs is not None:
        write_values(save_outputs, outputs)
        console.print(f"saved outputs to {save_outputs}")
    if trace_to is not None and profile is not None:
        write_text(trace_to, json.dumps(profile.chrome_trace()) + "\n")
        console.print(f"saved trace to {trace_to}")
    write_json(json_to, to_json(report))
