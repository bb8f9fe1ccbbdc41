"""The commands `collage explain` and `collage trust`, on packages as files: they run nothing."""

from __future__ import annotations

import re
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

    `--json` writes the whole record of the optimisation, or a list of them if PACKAGE has plans for several shapes.
    """
    from collage.report.documents.codec import dumps, record_from_document, to_json, to_jsonable
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
    write_json(json_to, to_json(records[0]) if len(records) == 1 else dumps([to_jsonable(each) for each in records]))


@click.command(short_help="Accept packages of others, code in them included.")
@click.argument("packages", nargs=-1, metavar="PACKAGE...")
@click.option("--list", "listing", is_flag=True, help="Show what is trusted: written on this machine, or accepted.")
@click.option("--forget", is_flag=True, help="Trust PACKAGE no longer; a digest that --list shows will do.")
@verbose_option
def trust(packages: tuple[str, ...], listing: bool, forget: bool) -> None:
    """Accept packages that were not written on this machine: code in them may be loaded.

    Accept only those of people whose programs you would run. What is accepted is the content: a copy is accepted too, a
    changed package is not.
    """
    from collage.runtime.package import TrustedPackages, load_package
    from collage_core.errors import UsageError

    trusted = TrustedPackages()
    if listing == bool(packages) or (listing and forget):
        raise click.UsageError("Name packages, or use --list.")
    for each in trusted if listing else ():
        click.echo(f"{each.digest} {each.how} {each.when} {each.path}")
    for name in packages:
        if forget:
            digest = name if re.fullmatch("[0-9a-f]{64}", name) else load_package(name).digest
            if not trusted.remove(digest):
                raise UsageError(f"{name} is not trusted; `collage trust --list` shows what is")
            click.echo(f"{name}: trusted no longer")
            continue
        package = load_package(name)
        package.verify()
        trusted.add(package.digest, Path(name), "accepted")
        targets = ", ".join(sorted(package.manifest.targets)) or "no target"
        click.echo(f"{name}: accepted, with its kernels of {targets}")
