"""`collage doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from collage_core.cli.options import json_option, verbose_option
from collage_core.cli.output import results_console, write_json


@click.command(short_help="Show devices, toolchains and versions.")
@json_option
@verbose_option
@click.pass_context
def doctor(ctx: click.Context, json_to: Path | None) -> None:
    """Show devices, toolchains and versions, and why one is unusable.

    Exits with 1 if no toolchain is usable.
    """
    from collage_core import pipeline
    from collage_core.report.codec import to_json
    from collage_core.report.fact_tables import doctor_summary

    report = pipeline.doctor()
    results_console(json_to).print(doctor_summary(report))
    write_json(json_to, to_json(report))
    if not report.usable:
        click.echo("No toolchain is usable. Install a plugin, for example collage-onnxruntime.", err=True)
        ctx.exit(1)
