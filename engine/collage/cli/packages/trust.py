"""The command `collage trust`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from collage.cli.options.common import verbose_option


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
