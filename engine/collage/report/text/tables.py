"""Render an optimisation and a comparison as tables, for `rich` consoles.

Cells are `Text`, never markup: node and target names contain brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from collage.report import figures
from collage.report.facts.record import NAN_AS_EXPECTED, Comparison, ContenderFacts, Record, RegionFacts
from collage.report.facts.search_facts import PHASES, CompatibleSetFacts, SearchFacts
from collage.report.fitted_table import add_cells, plain_table
from collage.report.text.accuracy import metric_line
from collage.report.text.coverage import coverage_lines
from collage.report.text.headroom import ABOVE, headroom_lines
from collage.report.text.operator_summary import summarize_operators
from collage.report.text.predictions import misprediction_lines, predicted_against_measured
from collage.report.text.refusal_groups import group_refusals
from collage_core.candidates.refusals import Refusal

_OF_ROUNDS = "over rounds in which both ran, or each with a third, so not quite the quotient of the medians above"
_INEXACT = "not in the model's own types throughout: faster, and less exact (`collage compare` says by how much)"
_REGIONS_SHOWN = 16
_REFUSALS_SHOWN = 8
RETRYING = "what is known from earlier runs is tried again with another version of the plugin, or by --retry-failed"


def optimize_summary(record: Record, *, everything: bool = False) -> RenderableType:
    """Render the final output of `optimize`.

    Args:
        record: Record of the optimization.
        everything: Whether to list every region, toolchain and refusal.
    """
    parts: list[RenderableType] = [
        comparison_table(record.comparison),
        regions_table(record, limit=None if everything else _REGIONS_SHOWN),
        Text(predicted_against_measured(record)),
        *(Text(line) for line in misprediction_lines(record)),
        Text(f"largest output error {figures.error(record.max_error)} relative to the output's scale"),
    ]
    if record.metric is not None:
        parts.append(Text(metric_line(record.metric)))
    if record.nan and record.nan != NAN_AS_EXPECTED:
        parts.append(Text(record.nan))
    if record.unchecked:
        parts.append(Text(f"not independently checked: {_names(record.unchecked)}"))
    lines = coverage_lines(record, everything=everything, reasons=everything)
    if lines:
        parts += [Text(), *(Text(line) for line in lines)]
    if record.refusals:
        parts.append(refusals_table(record.refusals, limit=None if everything else _REFUSALS_SHOWN))
    parts += [Text(), *(Text(line) for line in (*headroom_lines(record), *search_lines(record.search)))]
    parts += [Text(f"note: {note}") for note in record.notes]
    parts += [Text(), Text(record.decision, style="bold")]
    return Group(*parts)


def comparison_table(comparison: Comparison) -> RenderableType:
    """Render contenders side by side; below the table, why any of them failed."""
    table = plain_table(
        "contender",
        "kind",
        "toolchains",
        ">kernels",
        ">p50 ms",
        ">95 % CI",
        ">ratio",
        ">95 % CI",
        drop=("toolchains", "kind", "kernels"),
    )
    table.columns[1].no_wrap = True
    for contender in comparison.contenders:
        add_cells(table, *_contender_cells(contender), style=_style(contender, comparison))
    failures = [Text(f"{c.name} failed: {c.failed}", style="red") for c in comparison.contenders if c.failed]
    below: list[RenderableType] = []
    if comparison.best_single:
        below = [Text(f"ratio: to {comparison.best_single}, the best single toolchain; {_OF_ROUNDS}")]
    if not all(contender.exact for contender in comparison.contenders):
        below.append(Text(f"*: {_INEXACT}"))
    return Group(table, *below, *_as_called(comparison), *_throughput(comparison), *failures)


def _as_called(comparison: Comparison) -> list[RenderableType]:
    """Render runs as users call them, in a table of their own; nothing if none were timed."""
    table = plain_table(
        "as users call it", ">p50 ms", ">95 % CI", ">p90", ">p99", ">ratio", ">95 % CI", drop=("p99", "p90")
    )
    for contender in comparison.contenders:
        if (called := contender.as_called) is not None:
            ratio = ("-", "")
            if called.ratio is not None and called.ratio_ci95 is not None:
                ratio = figures.ratio(called.ratio), figures.span(called.ratio_ci95, 3)
            latency = called.latency_ms
            late = figures.milliseconds(latency.p90), figures.milliseconds(latency.p99)
            shown = figures.milliseconds(latency.p50), figures.span(latency.ci95), *late
            add_cells(table, contender.name, *shown, *ratio)
    if not table.row_count:
        return []
    best = comparison.best_single_as_called
    return [table, *([Text(f"ratio: to {best}, the best single toolchain so")] if best else [])]


def _throughput(comparison: Comparison) -> list[RenderableType]:
    """Render how many runs sessions make side by side; nothing if that was not timed."""
    timed = {contender.name: contender.per_s for contender in comparison.contenders if contender.per_s}
    if not timed:
        return []
    table = plain_table(figures.counted(comparison.streams, "session") + " side by side", ">runs/s", ">of the best")
    best = max(timed.values())
    for name, per_s in timed.items():
        style = "bold" if per_s == best else ""
        add_cells(table, name, figures.significant(per_s, 4), figures.ratio(per_s / best), style=style)
    return [table]


def regions_table(record: Record, *, limit: int | None = None) -> RenderableType:
    """Render the kernels of the plan in execution order, with their shares of the time.

    Args:
        record: Record of the optimization.
        limit: Maximum number of regions listed; the costliest are kept. None for all.
    """
    regions = record.regions
    times = {region.id: region.time_us for region in regions}
    kept = {region.id for region in sorted(regions, key=lambda r: (-times[r.id], r.id))[:limit]}
    whole = sum(times.values())
    estimated = record.machine is not None
    peaks = (">of peak",) if estimated else ()
    table = plain_table(
        "kernel",
        "target",
        "operators",
        ">nodes",
        ">predicted us",
        ">measured us",
        ">share",
        *peaks,
        drop=("nodes", "of peak", "predicted us", "operators"),
    )

    def add_row(
        names: tuple[str, str, str], rows: Sequence[RegionFacts], of_peak: float | None, style: str = ""
    ) -> None:
        measured = [region.measured_us or 0.0 for region in rows]
        add_cells(
            table,
            *names,
            str(sum(len(region.nodes) for region in rows)),
            figures.microseconds(sum(region.cost_us for region in rows)),
            figures.microseconds(sum(measured) if all(measured) else None),
            figures.percent(sum(times[region.id] for region in rows), whole),
            *((share_of_peak(of_peak),) if estimated else ()),
            style=style,
        )

    for region in regions:
        if region.id in kept:
            names = (region.id, region.target, summarize_operators(region.operators))
            add_row(names, [region], region.share_of_peak)
    others = [region for region in regions if region.id not in kept]
    if others:
        add_row(("...", "", f"{figures.counted(len(others), 'kernel')} more"), others, None)
    table.add_section()
    add_row(("total", "", figures.counted(len(regions), "kernel")), regions, record.share_of_peak, style="bold")
    shares = (record.share_of_peak, *(region.share_of_peak for region in regions if region.id in kept))
    if any(share is not None and share > 1 for share in shares):
        return Group(table, Text(f"*: {ABOVE}"))
    return table


def share_of_peak(share: float | None) -> str:
    """Format a share of the machine's peak; a star marks one that the estimate cannot explain."""
    if share is None:
        return "-"
    return figures.whole_percent(share) + (" *" if share > 1 else "")


def refusals_table(refusals: Iterable[Refusal], *, limit: int | None = None) -> RenderableType:
    """Render refusals grouped by reason.

    Args:
        refusals: Refusals of any targets.
        limit: Maximum number of reasons listed; those with most nodes are kept. None for all.
    """
    groups = group_refusals(refusals)
    kept = set(sorted(groups, key=lambda g: (-len(g.nodes), -g.refusals, g.target, g.reason))[:limit])
    table = plain_table("refused by", "when", ">times", ">nodes", "reason", drop=("when", "times"))
    for group in groups:
        if group in kept:
            add_cells(table, group.target, group.stage, str(group.refusals), str(len(group.nodes)), group.text)
    more = len(groups) - len(kept)
    lines = [f"{figures.counted(more, 'more reason')}; -v lists all"] if more else []
    if any(group.remembered for group in groups):
        lines.append(RETRYING)
    return Group(table, *map(Text, lines)) if lines else table


def search_lines(search: SearchFacts) -> tuple[str, ...]:
    """Describe in a few lines how the plan was found."""
    lines = [
        f"search {search.method}, {figures.counted(search.rounds, 'round')}",
        f"candidates {search.candidates}, parts of the model that a target runs as one kernel; "
        f"{search.distinct_candidates} of them differ",
        f"measured now {search.measured}, known from the tuning database {search.cache_hits}",
    ]
    if search.compatible_sets:
        lines.append(f"some targets exclude each other; the best plan of {_sets(search.compatible_sets)}")
    if search.left_out:
        lines.append(f"left out: {search.left_out}")
    phases = [*(phase for phase in PHASES if phase in search.seconds), *sorted(set(search.seconds) - set(PHASES))]
    if phases:
        lines.append("time " + ", ".join(f"{phase} {figures.seconds(search.seconds[phase])}" for phase in phases))
    return tuple(lines)


def _sets(sets: Iterable[CompatibleSetFacts]) -> str:
    def best(each: CompatibleSetFacts) -> str:
        if each.predicted_ms is None:
            return "none covers the model"
        return f"{figures.milliseconds(each.predicted_ms)} ms predicted, by {', '.join(each.used)}"

    return "; ".join(f"{{{', '.join(each.targets)}}}: {best(each)}" for each in sets)


def _contender_cells(contender: ContenderFacts) -> tuple[str, ...]:
    # a line each: side by side they would take the room of the figures
    name = contender.name if contender.exact else f"{contender.name} *"
    names = (name, contender.kind, ",\n".join(contender.toolchains))
    kernels = str(contender.regions) if contender.regions else "-"
    latency = contender.latency_ms
    if latency is None:
        return (*names, kernels, "failed", "", "", "")
    shown = (figures.milliseconds(latency.p50), figures.span(latency.ci95))
    if contender.ratio is None or contender.ratio_ci95 is None:
        return (*names, kernels, *shown, "-", "")
    return (*names, kernels, *shown, figures.ratio(contender.ratio), figures.span(contender.ratio_ci95, 3))


def _style(contender: ContenderFacts, comparison: Comparison) -> str:
    if contender.failed:
        return "dim"
    timed = [c.latency_ms.p50 for c in comparison.contenders if c.latency_ms]
    return "bold" if contender.latency_ms and contender.latency_ms.p50 == min(timed) else ""


def _names(names: Iterable[str], limit: int = 5) -> str:
    ordered = sorted(names)
    more = len(ordered) - limit
    return ", ".join(ordered[:limit]) + (f" and {more} more" if more > 0 else "")
