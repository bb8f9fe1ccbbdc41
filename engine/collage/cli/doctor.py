"""The `collage doctor` command."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import json_option, verbose_option
from collage.cli.output import results_console, write_json


@click.command(short_help="Show devices, toolchains and versions.")
@json_option
@verbose_option
@click.pass_context
def doctor(ctx: click.Context, json_to: Path | None) -> None:
    """Show devices, toolchains and versions, and why one is unusable.

    Exits with 1 if no toolchain is usable.
    """
    from collage.commands.doctor import doctor as diagnose
    from collage.report.documents.codec import to_json
    from collage.report.text.fact_tables import doctor_summary

    report = diagnose()
    results_console(json_to).print(doctor_summary(report))
    write_json(json_to, to_json(report))
    if not report.usable:
        click.echo("No toolchain is usable. Install a plugin, for example collage-onnxruntime.", err=True)
        ctx.exit(1)
