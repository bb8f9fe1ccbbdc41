"""Render the tuning database as tables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from collage.report import figures
from collage.report.fitted_table import add_cells, plain_table
from collage.store import StoreStats


def store_summary(url: str, stats: StoreStats) -> RenderableType:
    """Render the contents of a tuning store."""
    candidates = figures.counted(stats.keys, "candidate")
    lines = [
        f"tuning database {url}",
        f"{figures.counted(stats.records, 'record')} of {candidates}; {figures.counted(stats.documents, 'document')}; "
        f"{figures.counted(stats.blobs, 'cached file')} ({figures.size(stats.blob_bytes)})",
    ]
    if stats.open_attempts:
        lines.append(f"begun and never finished: {figures.counted(stats.open_attempts, 'candidate')}")
    parts: list[RenderableType] = [Text(line) for line in lines]
    for header, counts in (
        ("outcome", stats.by_outcome),
        ("target", stats.by_target),
        ("library versions", stats.fingerprints),
    ):
        if counts:
            parts.append(_counts(header, counts))
    return Group(*parts)


def _counts(header: str, counts: Mapping[str, int]) -> RenderableType:
    table = plain_table(header, ">records")
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        add_cells(table, name, str(count))
    return table
