"""The command `collage report`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import existing_file, verbose_option
from collage.cli.options.parameters import check_overwriting, output_file


@click.command(short_help="Write a page about a plan, to be opened in a browser.")
@click.argument("source", type=existing_file, metavar="PACKAGE|RECORD.json")
@click.option("-o", "--output", type=output_file, required=True, metavar="OUT.html", help="The page to write.")
@verbose_option
def report(source: Path, output: Path) -> None:
    """Write what is known of a plan as one HTML page: verdict, contenders, graph, refusals, search and commands.

    The page needs no network and no other file. RECORD.json is what `--json` of `optimize` and `explain`
    writes; a package's page has the picture of the graph, too.
    """
    from collage.commands.report import report as write_report
    from collage.report.figures import size

    check_overwriting({"--output": output}, [source])
    write_report(source, output)
    click.echo(f"saved {output} ({size(output.stat().st_size)}); open it in a browser")
