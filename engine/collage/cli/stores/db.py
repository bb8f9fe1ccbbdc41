"""The `collage db` commands for the tuning database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collage.cli.options.common import existing_file, json_option, tuning_db_option, verbose_option
from collage.cli.options.parameters import check_overwriting, output_file_or_dash
from collage.cli.output import results_console, write_json
from collage.cli.stores.removing import forget, gc

if TYPE_CHECKING:
    from collage.store import Transferred, TuningStore


@click.group(short_help="Look after the tuning database.")
def db() -> None:
    """Look after the tuning database: everything ever measured on this machine, and what toolchains cached."""


@db.command(short_help="Show how much it holds.")
@tuning_db_option
@json_option
@verbose_option
def stats(tuning_db: str | None, json_to: Path | None) -> None:
    """Show how much the database holds, by outcome, target and library version."""
    from collage.report.documents.codec import dumps, to_jsonable
    from collage.report.text.store_tables import store_summary
    from collage.store import database_file, open_database

    check_overwriting({"--json": json_to}, [database_file(tuning_db)])
    with open_database(tuning_db, read_only=True) as store:
        held = store.stats()
        results_console(json_to).print(store_summary(store.url, held))
        write_json(json_to, dumps({"schema_version": 1, "url": store.url, **to_jsonable(held)}))


@db.command(short_help="Write it as lines of JSON.")
@click.option(
    "-o",
    "--output",
    type=output_file_or_dash,
    default="-",
    metavar="FILE.jsonl",
    help="Where to; standard output unless given.",
)
@tuning_db_option
@verbose_option
def export(output: Path, tuning_db: str | None) -> None:
    """Write everything the database holds as lines of JSON, to be imported elsewhere.

    Of a damaged database it writes what can still be read, and ends with status 1.
    """
    from collage.report.figures import counted
    from collage.report.files import write_pieces
    from collage.store import database_file, export_lines, open_database
    from collage.store.errors import DatabaseError

    check_overwriting({"--output": output}, [database_file(tuning_db)])
    lost: list[DatabaseError] = []
    with open_database(tuning_db, salvage=True) as store:
        lines = (f"{line}\n" for line in export_lines(store, damaged=lost.append))
        if output == Path("-"):
            for line in lines:
                click.echo(line, nl=False)
        else:
            write_pieces(output, lines)
    if lost:
        raise click.ClickException(
            f"{store.url} is damaged: {counted(len(lost), 'part')} of it could not be read and is not in the export "
            f"({lost[0].reason}). Move it away and import the rest with `collage db import`."
        )


_cached_files_option = click.option(
    "--cached-files",
    is_flag=True,
    help="Also what toolchains cached, compiled code among it, and which packages were verified: only from those "
    "whose programs you would run.",
)


@db.command(name="import", short_help="Add what another machine exported.")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@_cached_files_option
@tuning_db_option
@verbose_option
def import_(file: Any, cached_files: bool, tuning_db: str | None) -> None:
    """Add what `collage db export` wrote to FILE ('-' for standard input). Importing again adds nothing."""
    from collage.store import import_lines, lines_of, open_database

    with open_database(tuning_db) as store:
        added = import_lines(store, lines_of(file), source=str(file.name), cached_files=cached_files)
        _say_what_was_added(store, added)


@db.command(short_help="Add what other databases hold.")
@click.argument("others", type=existing_file, nargs=-1, required=True)
@_cached_files_option
@tuning_db_option
@verbose_option
def merge(others: tuple[Path, ...], cached_files: bool, tuning_db: str | None) -> None:
    """Add what OTHERS, databases too, hold. Merging again adds nothing."""
    from collage.store import merge as add
    from collage.store import open_database

    with open_database(tuning_db) as store:
        for path in others:
            with open_database(path, read_only=True) as other:
                _say_what_was_added(store, add(store, other, cached_files=cached_files))


def _say_what_was_added(store: TuningStore, added: Transferred) -> None:
    from collage.report.figures import counted

    click.echo(
        f"{store.url}: {counted(added.records, 'new record')}, {added.known} known already, "
        f"{counted(added.blobs, 'new cached file')}, {counted(added.documents, 'new document')}"
        + (f"; {counted(added.left_out, 'cached file')} left out (--cached-files)" if added.left_out else "")
    )


db.add_command(gc)
db.add_command(forget)
