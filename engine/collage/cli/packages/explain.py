"""The command `collage explain`."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from collage.cli.options.common import existing_file, is_verbose, json_option, verbose_option
from collage.cli.options.parameters import check_overwriting
from collage.cli.output import results_console, write_json


@click.command(short_help="Say why each region went where it did.")
@click.argument("package", type=existing_file)
@json_option
@verbose_option
@click.pass_context
def explain(ctx: click.Context, package: Path, json_to: Path | None) -> None:
    """Say why each region of PACKAGE went where it did.

    `--json` writes all of it, as `collage optimize --json` does.
    """
    from collage.report.documents.codec import record_from_document
    from collage.report.documents.outputs import plans_json
    from collage.report.text.explanation import WIDTH
    from collage.report.text.explanation import explain as explanation
    from collage.report.text.shapes_summary import shapes_summary
    from collage.runtime.package import load_package
    from collage.runtime.package.plan import described

    check_overwriting({"--json": json_to}, [package])
    records = [record_from_document(plan.record, str(package)) for plan in load_package(package).plans]
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    console = results_console(json_to)
    if len(records) > 1:
        console.print(shapes_summary(records))
    for record in records:
        if len(records) > 1:
            console.rule(described(record.model.input_shapes), align="left")
        text = explanation(record, width=width, everything=is_verbose(ctx))
        click.echo(text, nl=False, err=json_to == Path("-"))
    write_json(json_to, plans_json(records))
