"""The `collage` command.

Command modules import nothing heavy before their command runs, so that `--help` is quick.
"""

from __future__ import annotations

import io
import sys

import click

from collage.cli.bench import bench
from collage.cli.compare import compare
from collage.cli.db import db
from collage.cli.doctor import doctor
from collage.cli.failures import FailureReportingGroup
from collage.cli.frontier import frontier
from collage.cli.inspect import inspect
from collage.cli.new_plugin import new_plugin
from collage.cli.optimize import optimize
from collage.cli.options.common import verbose_option
from collage.cli.packages import explain, trust
from collage.cli.partition import partition
from collage.cli.run import run
from collage.own_process import import_sympy_late, limit_spinning

__all__ = ["main"]


@click.group(cls=FailureReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="collage-engine", prog_name="collage")
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


for _command in (doctor, inspect, partition, optimize, frontier, run, bench, compare, explain, trust, db, new_plugin):
    main.add_command(_command)
