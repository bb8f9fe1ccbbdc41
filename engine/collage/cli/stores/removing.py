"""The `collage db` commands that remove something."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collage.cli.options.common import existing_file, tuning_db_option, verbose_option
from collage.cli.options.parameters import duration

if TYPE_CHECKING:
    from collage.store import Removal, TuningStore

_dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would go.")
_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.command(short_help="Remove what nothing that is installed can use.")
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
    help="Remove what was measured longer ago than this instead: 90d, 12h.",
)
@click.option(
    "--packages",
    type=existing_file,
    multiple=True,
    metavar="PACKAGE",
    help="Remove what belongs to models of which none of these is a package instead; repeat.",
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
    """Remove what no installed version of a library or plugin can use; or what is old, or of no package in use.

    What cannot be used belongs to other versions of libraries, or is a failure of another version of a plugin, or its
    measurement where the installed version has its own. With --older-than or --packages only what they say goes, as a
    database that several machines share needs it: what is installed elsewhere is not known here.
    """
    from collage.store import is_shared, open_database

    if keep and (older_than is not None or packages):
        raise click.UsageError("--keep goes with neither --older-than nor --packages: they go by no version")
    if older_than is None and not packages and is_shared(tuning_db):
        raise click.UsageError(
            "of a database that machines share, say what goes by --older-than or --packages: what is installed "
            "elsewhere is not known here"
        )
    with open_database(tuning_db, read_only=dry_run) as store:
        asked = older_than is not None or packages
        removal = _old_or_unused(store, older_than, packages) if asked else _unusable(store, keep)
        if not removal:
            click.echo("Nothing to remove.")
            return
        _remove(store, removal, dry_run=dry_run, yes=yes)


@click.command(short_help="Remove what is known of a target or a model.")
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


def _old_or_unused(store: TuningStore, seconds: float | None, packages: Collection[Path]) -> Removal:
    """Return what is older, and what none of some packages needs."""
    import datetime

    from collage.commands.stores.retention import of_other_models, older_than, together

    removals: list[Removal] = []
    if seconds is not None:
        removals.append(older_than(store, seconds, datetime.datetime.now(datetime.UTC)))
    if packages:
        removals.append(of_other_models(store, packages))
    return together(removals)


def _unusable(store: TuningStore, keep: Collection[str]) -> Removal:
    """Return what nothing that is installed can use, and say to which versions it belongs."""
    from collage.commands.doctor import doctor
    from collage.store import unusable

    toolchains = [toolchain for toolchain in doctor().toolchains if toolchain.fingerprint]
    plugins = {toolchain.name: toolchain.plugin for toolchain in toolchains}
    held = {*store.stats().fingerprints, *(space.fingerprint for space, _ in store.blob_keys())}
    # a plan over several toolchains carries all their fingerprints in one, words among others
    words = [f" {toolchain.fingerprint} " for toolchain in toolchains]
    kept = {name for name in held if name in keep or any(version in f" {name} " for version in words)}
    removal = unusable(store, kept, plugins, keep)
    going = sorted(held - kept) + sorted(_plugins_of(store, removal) - set(plugins.values()))
    if removal and going:
        click.echo("It belongs to: " + ", ".join(going))
    return removal


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
