"""Render plans for several input shapes side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from collage.report.facts.record import Record
from collage.report.fitted_table import add_cells, plain_table
from collage.runtime.package.plan import described


def shapes_summary(records: Sequence[Record]) -> RenderableType:
    """Render one line for each set of input shapes: what its plan takes, against what, and where the choice changes.

    Args:
        records: Records of the optimizations, in the order of the shapes.
    """
    table = plain_table(
        "input shapes",
        ">p50 ms",
        "best single toolchain",
        ">ratio",
        ">95 % CI",
        ">kernels",
        "plan",
        drop=("kernels", "95 % CI", "plan"),
    )
    before: object = None
    for record in records:
        own = record.comparison.contenders[0] if record.comparison.contenders else None  # the plan that was kept
        interval = None if own is None else own.ratio_ci95
        choice = _choice_of(record)
        add_cells(
            table,
            described(record.model.input_shapes),
            "" if record.measured_ms is None else f"{record.measured_ms:.4g}",
            record.comparison.best_single or "",
            f"{own.ratio:.3f}" if own is not None and own.ratio else "",
            "" if interval is None else f"{interval[0]:.3f} - {interval[1]:.3f}",
            str(len(record.regions)),
            "as above" if choice == before else _in_words(record),
        )
        before = choice
    lines = [Text(f"{described(record.model.input_shapes)}: {record.decision}") for record in records]
    counted = sum(record.search.measured for record in records), sum(record.search.cache_hits for record in records)
    measured = f"{counted[0]} candidates were measured, {counted[1]} were known from other shapes or earlier runs"
    return Group(table, *lines, Text(measured))


def _choice_of(record: Record) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return what distinguishes a plan from one for other shapes: target and nodes of each kernel."""
    return tuple((region.target, region.nodes) for region in record.regions)


def _in_words(record: Record) -> str:
    """Return the targets of a plan with the number of nodes that each runs."""
    counts: dict[str, int] = {}
    for region in record.regions:
        counts[region.target] = counts.get(region.target, 0) + len(region.nodes)
    return ", ".join(f"{target}: {count} {'node' if count == 1 else 'nodes'}" for target, count in counts.items())
