"""Render the latency that each bound on the error buys."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from collage.report import figures
from collage.report.facts.frontier_facts import FrontierPoint, FrontierReport
from collage.report.fitted_table import add_cells, plain_table


def frontier_summary(report: FrontierReport) -> RenderableType:
    """Render a frontier: a row for each bound, those that another beats in both respects dimmed."""
    table = plain_table(
        ">max error", ">error", ">p50 ms", ">ratio", ">95 % CI", ">int8", "plan", "package", drop=("plan", "int8")
    )
    for point in report.points:
        add_cells(table, *_cells(point), style="" if point.is_best else "dim")
    lines = [Text("ratio: to the plan in the model's own types; dim: another is both as fast and as near")]
    lines += [Text(f"{point.package} does not run: {point.failed}") for point in report.points if point.failed]
    lines += [Text(f"note: {note}") for note in report.notes]
    return Group(table, *lines)


def _cells(point: FrontierPoint) -> tuple[str, ...]:
    latency = point.latency_ms
    return (
        "own types" if point.max_error is None else f"{point.max_error:g}",
        figures.error(point.error),
        "failed" if latency is None else figures.milliseconds(latency.p50),
        figures.ratio(point.ratio) if point.ratio is not None else "",
        figures.span(point.ratio_ci95) if point.ratio_ci95 is not None else "",
        str(point.int8) if point.int8 else "",
        f"{', '.join(point.targets)} ({figures.counted(point.kernels, 'kernel')})",
        point.package,
    )
