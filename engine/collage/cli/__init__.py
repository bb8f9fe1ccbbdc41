"""The `collage` command.

Command modules import nothing heavy before their command runs, so that `--help` is quick.
"""

from __future__ import annotations

import io
import sys

import click

from collage.cli.bench import bench
from collage.cli.compare import compare
from collage.cli.doctor import doctor
from collage.cli.failures import FailureReportingGroup
from collage.cli.frontier import frontier
from collage.cli.inspect import inspect
from collage.cli.measure import measure
from collage.cli.new_plugin import new_plugin
from collage.cli.optimize import optimize
from collage.cli.optimize_all import optimize_all
from collage.cli.options.common import verbose_option
from collage.cli.packages.explain import explain
from collage.cli.packages.export import export
from collage.cli.packages.report import report
from collage.cli.packages.trust import trust
from collage.cli.partition import partition
from collage.cli.run import run
from collage.cli.stores.db import db
from collage.cli.stores.resolve import resolve
from collage.own_process import import_sympy_late, limit_spinning

__all__ = ["main"]


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    import platform
    from importlib.metadata import entry_points, version

    from collage_core.entry_points import distribution_of
    from collage_core.hookspecs import ENTRY_POINT_GROUP

    click.echo(f"collage {version('collage-engine')} (collage-core {version('collage-core')})")
    click.echo(f"Python {platform.python_version()}")
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name):
        click.echo(f"{entry.name}: {distribution_of(entry)}")
    ctx.exit()


@click.group(cls=FailureReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of Collage and of the installed plugins, and exit.",
)
@verbose_option
def main() -> None:
    """Mix inference toolchains: measure which one runs each part of an ONNX model fastest.

    The result is one executable that is never slower than the best single toolchain.
    """
    import_sympy_late()
    limit_spinning()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names of files need not be text; standard error shows those that are not in the same way
        sys.stdout.reconfigure(errors="backslashreplace")


for _command in (
    doctor,
    inspect,
    partition,
    optimize,
    optimize_all,
    measure,
    frontier,
    run,
    bench,
    compare,
    explain,
    report,
    export,
    trust,
    db,
    resolve,
    new_plugin,
):
    main.add_command(_command)
