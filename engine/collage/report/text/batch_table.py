"""The table of `collage optimize-all`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from collage.report import figures
from collage.report.facts.batch_facts import BatchEntry, BatchReport
from collage.report.fitted_table import add_cells, plain_table


def batch_summary(report: BatchReport) -> RenderableType:
    """Render a line for each model on each machine, and below it why some have no package."""
    machines = sorted({entry.machine for entry in report.entries})
    names = {machine: f"m{number}" for number, machine in enumerate(machines, start=1)}
    table = plain_table(
        "model", "on", "best single", ">ms", "plan", ">plan ms", ">ratio", ">error", drop=("error", "plan", "best single")
    )
    for entry in report.entries:
        add_cells(table, entry.model, names[entry.machine], *_cells(entry), style="" if entry.package else "red")
    known = sum(bool(entry.package) and not entry.made for entry in report.entries)
    lines = [f"{names[machine]}: {machine}" for machine in machines]
    lines += [f"{entry.model} on {names[entry.machine]}: {entry.reason}" for entry in report.entries if entry.reason]
    if known:
        lines.append(f"{figures.counted(known, 'package was', 'packages were')} there already, made of the same")
    lines += [f"note: {note}" for note in report.notes]
    return Group(table, *map(Text, lines))


def _cells(entry: BatchEntry) -> tuple[str, ...]:
    return (
        entry.best_single or "-",
        "-" if entry.best_single_ms is None else figures.milliseconds(entry.best_single_ms),
        ", ".join(entry.toolchains) or "-",
        "-" if entry.latency_ms is None else figures.milliseconds(entry.latency_ms),
        "-" if entry.ratio is None else f"{entry.ratio:.3f}",
        "-" if entry.max_error is None else figures.error(entry.max_error),
    )
