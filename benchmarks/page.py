"""Committed results as a page: what was measured, on what machine, with which versions, when; a table; and notes.

Notes record facts the numbers do not show, for example that the machine had other load. They are stored
with the results, so a page that is generated again includes them.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.judge.report import host, versions, write_json


def environment() -> dict[str, Any]:
    """Return where and when this runs, as JSON: `date` (UTC), `host`, `versions`."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, "host": host(), "versions": versions()}


def head(title: str, measured_in: Mapping[str, Any], how: str, processes: str) -> list[str]:
    """Format the lines before the table.

    Args:
        title: Title of the page.
        measured_in: Result of `environment`.
        how: How it was measured and how to read it, one paragraph.
        processes: Number of threads or processes that took part, in a few words.
    """
    where = f"{machine(measured_in['host'])}; {processes}"
    libraries = ", ".join(f"{name} {version}" for name, version in measured_in["versions"].items())
    return [f"# {title}", "", f"{where}; {measured_in['date'][:10]}.", "", f"{libraries}.", "", how, ""]


def machine(host: Mapping[str, Any]) -> str:
    """Say which machine a host of `environment` is."""
    vectors = f" ({', '.join(host['vectors'])})" if host.get("vectors") else ""
    return f"{host['cpu']}{vectors}, {host['cores']} cores, {host['system']}"


def lines_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a Markdown table as lines."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def noting(parser: argparse.ArgumentParser) -> None:
    """Add the option `--note` to a benchmark."""
    text = "a paragraph for the results and their page; several times, if need be"
    parser.add_argument("--note", action="append", default=[], metavar="TEXT", help=text)


def written(results: Path, report: Mapping[str, Any], page: str, notes: Sequence[str], *, afresh: bool = False) -> None:
    """Write results, and their page beside them.

    Args:
        results: The JSON file; the page has the same name with the suffix `.md`.
        report: Content of the JSON file; `notes` are added.
        page: The page without notes.
        notes: Remarks on this run.
        afresh: Whether nothing in the file is from an earlier run; if not, notes of that run are kept.
    """
    kept: list[str] = []
    if not afresh and results.is_file():
        kept = json.loads(results.read_text(encoding="utf-8")).get("notes", [])
    said = list(dict.fromkeys((*kept, *notes)))
    write_json(results, {**report, "notes": said})
    results.with_suffix(".md").write_text(with_notes(page, said), encoding="utf-8")


def with_notes(page: str, notes: Iterable[str]) -> str:
    r"""Append the notes to a page, a paragraph each.

    Examples:
        >>> with_notes("| a |\n", ["It was warm."])
        '| a |\n\nIt was warm.\n'
    """
    return page + "".join(f"\n{note}\n" for note in notes)
