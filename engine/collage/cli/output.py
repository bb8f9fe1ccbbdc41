"""Select the streams for results, JSON and progress."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from collage.report.progress import Progress

_WIDTH_OF_FILES = 100
"""Console width in columns when it is unknown; rich's default of 80 would break our tables."""


def results_console(json_to: Path | None = None) -> Console:
    """Return a console for tables on standard output, or on standard error if standard output carries JSON."""
    return _console(stderr=json_to == Path("-"))


@contextlib.contextmanager
def shown_progress() -> Iterator[Progress]:
    """Display progress on standard error and restore the terminal on exit."""
    from collage.report.progress import progress_for

    progress = progress_for(_console(stderr=True))
    try:
        yield progress
    finally:
        progress.done()


def write_json(json_to: Path | None, text: str) -> None:
    """Write JSON to the destination of `--json`; do nothing if it was not given."""
    from collage.report.files import write_text

    if json_to == Path("-"):
        click.echo(text, nl=False)
    elif json_to is not None:
        write_text(json_to, text)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, width=None if known else _WIDTH_OF_FILES, markup=False, highlight=False, emoji=False)
