"""Committed results as a page: what was measured, on what machine, with which versions, when; and a table."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.judge.report import host, versions


def environment() -> dict[str, Any]:
    """Where and when this runs, as JSON: `date` (UTC), `host`, `versions`."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, "host": host(), "versions": versions()}


def head(title: str, measured_in: Mapping[str, Any], how: str, processes: str) -> list[str]:
    """The lines before the table.

    Args:
        title: Of the page.
        measured_in: What `environment` gave.
        how: How it was measured and how to read it, one paragraph.
        processes: How many threads or processes took part, in a few words.
    """
    machine = measured_in["host"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; {processes}"
    libraries = ", ".join(f"{name} {version}" for name, version in measured_in["versions"].items())
    return [f"# {title}", "", f"{where}; {measured_in['date'][:10]}.", "", f"{libraries}.", "", how, ""]


def lines_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]
