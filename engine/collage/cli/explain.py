"""The `collage explain` command."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from collage.cli.options import existing_file, is_verbose, json_option, verbose_option
from collage.cli.output import write_json
from collage.cli.parameters import check_overwriting


@click.command(short_help="Say why each region went where it did.")
@click.argument("package", type=existing_file)
@json_option
@verbose_option
@click.pass_context
def explain(ctx: click.Context, package: Path, json_to: Path | None) -> None:
    """Say why each region of PACKAGE went where it did.

    `--json` writes the whole record of the optimisation.
    """
    from collage.report.documents.codec import record_from_document, to_json
    from collage.report.text.explanation import WIDTH
    from collage.report.text.explanation import explain as explanation
    from collage.runtime.package import load_package

    check_overwriting({"--json": json_to}, [package])
    record = record_from_document(load_package(package).record, str(package))
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    text = explanation(record, width=width, everything=is_verbose(ctx))
    click.echo(text, nl=False, err=json_to == Path("-"))
    write_json(json_to, to_json(record))
