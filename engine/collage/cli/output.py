"""Where results, JSON and progress go."""

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
"""Columns where nobody says how wide the screen is: rich's 80 would break tables of ours."""


def results_console(json_to: Path | None = None) -> Console:
    """A console for tables: standard output, or standard error if standard output is for JSON."""
    return _console(stderr=json_to == Path("-"))


@contextlib.contextmanager
def shown_progress() -> Iterator[Progress]:
    """Progress on standard error, which is given back however the work ends."""
    from collage.report.progress import progress_for

    progress = progress_for(_console(stderr=True))
    try:
        yield progress
    finally:
        progress.done()


def write_json(json_to: Path | None, text: str) -> None:
    """Writes JSON where `--json` says; nothing without it."""
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
