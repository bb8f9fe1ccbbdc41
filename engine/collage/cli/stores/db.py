"""The `collage db` commands for the tuning database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collage.cli.options.common import existing_file, json_option, tuning_db_option, verbose_option
from collage.cli.options.parameters import check_overwriting, duration, output_file_or_dash
from collage.cli.output import results_console, write_json

if TYPE_CHECKING:
    from collage.store import Removal, Transferred, TuningStore


_dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would go.")
_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


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
    help="Also what toolchains cached, compiled code among it: only from those whose programs you would run.",
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


@db.command(short_help="Remove what nothing that is installed can use.")
@click.option(
    "--keep",
    multiple=True,
    metavar="VERSION",
    help="Keep what belongs to this version of a library or plugin, as `collage db stats` shows it, besides those "
    "installed now; repeat.",
)
@click.option(
    "--older-than",
    type=duration,
    metavar="TIME",
    help="Remove also what was measured longer ago than this: 90d, 12h.",
)
@click.option(
    "--packages",
    type=existing_file,
    multiple=True,
    metavar="PACKAGE",
    help="Remove also what belongs to models of which none of these is a package; repeat.",
)
@_dry_run_option
@_yes_option
@tuning_db_option
@verbose_option
def gc(
    keep: tuple[str, ...],
    older_than: float | None,
    packages: tuple[Path, ...],
    dry_run: bool,
    yes: bool,
    tuning_db: str | None,
) -> None:
    """Remove what no installed version of a library or plugin can use, and on demand what is old or not in use.

    What cannot be used belongs to other versions of libraries, or is a failure of another version of a plugin, or its
    measurement where the installed version has its own. Of a database that several machines share, give only the other
    two: what is installed elsewhere is not known here.
    """
    import datetime

    from collage.commands.doctor import doctor
    from collage.commands.stores.retention import of_other_models, together
    from collage.commands.stores.retention import older_than as old
    from collage.store import open_database, unusable

    with open_database(tuning_db, read_only=dry_run) as store:
        removals: list[Removal] = []
        if older_than is not None:
            removals.append(old(store, older_than, datetime.datetime.now(datetime.UTC)))
        if packages:
            removals.append(of_other_models(store, packages))
        if not removals:
            toolchains = [toolchain for toolchain in doctor().toolchains if toolchain.fingerprint]
            plugins = {toolchain.name: toolchain.plugin for toolchain in toolchains}
            held = {*store.stats().fingerprints, *(space.fingerprint for space, _ in store.blob_keys())}
            # a plan over several toolchains carries all their fingerprints in one, words among others
            words = [f" {toolchain.fingerprint} " for toolchain in toolchains]
            kept = {name for name in held if name in keep or any(version in f" {name} " for version in words)}
            removals.append(unusable(store, kept, plugins, keep))
            going = sorted(held - kept) + sorted(_plugins_of(store, removals[0]) - set(plugins.values()))
            if removals[0] and going:
                click.echo("It belongs to: " + ", ".join(going))
        removal = together(removals)
        if not removal:
            click.echo("Nothing to remove.")
            return
        _remove(store, removal, dry_run=dry_run, yes=yes)


@db.command(short_help="Remove what is known of a target or a model.")
@click.argument("what", metavar="TARGET|MODEL")
@_dry_run_option
@_yes_option
@tuning_db_option
@verbose_option
def forget(what: str, dry_run: bool, yes: bool, tuning_db: str | None) -> None:
    """Remove what is known of TARGET or MODEL: measurements, failures, profiles, answers, races and verifications.

    MODEL is a file, or its SHA-256, which `collage explain` shows. Kernels that it shares with other models are
    measured again for these, too. A toolchain without options stands for all its targets, with what it cached.
    """
    from collage.commands.stores.forget import known_of
    from collage.store import open_database
    from collage_core.errors import did_you_mean

    with open_database(tuning_db, read_only=dry_run) as store:
        removal = known_of(store, what)
        if not removal:
            known = store.stats().by_target
            click.echo(f"Nothing to remove: {store.url} knows nothing of {what}{did_you_mean(what, known)}.")
            return
        _remove(store, removal, dry_run=dry_run, yes=yes)


def _say_what_was_added(store: TuningStore, added: Transferred) -> None:
    from collage.report.figures import counted

    click.echo(
        f"{store.url}: {counted(added.records, 'new record')}, {added.known} known already, "
        f"{counted(added.blobs, 'new cached file')}, {counted(added.documents, 'new document')}"
        + (f"; {counted(added.left_out, 'cached file')} left out (--cached-files)" if added.left_out else "")
    )


def _remove(store: TuningStore, removal: Removal, *, dry_run: bool, yes: bool) -> None:
    """Remove items after the user agreed."""
    from collage.report.figures import counted

    parts = (
        (len(removal.records), "record"),
        (len(removal.attempts), "unfinished attempt"),
        (len(removal.blobs), "cached file"),
        (len(removal.documents), "document"),
    )
    what = ", ".join(counted(number, name) for number, name in parts if number)
    if dry_run:
        click.echo(f"To be removed: {what}")
        return
    if not yes:
        click.confirm(f"Remove {what} from {store.url}?", abort=True)
    store.remove(removal)
    click.echo(f"removed {what} from {store.url}")


def _plugins_of(store: TuningStore, removal: Removal) -> set[str]:
    plugins = {record.key.plugin for record in store.all_records() if record.content_id in removal.records}
    return plugins - {""}
