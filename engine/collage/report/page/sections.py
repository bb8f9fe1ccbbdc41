"""What the page of one plan says outside of its picture, ready for the template."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from collage.report import figures
from collage.report.facts.record import Comparison, ContenderFacts, LatencyFacts, Record, RegionFacts
from collage.report.page.history import history_chart
from collage.report.text.accuracy import accuracy, metric_line
from collage.report.text.coverage import coverage_lines
from collage.report.text.headroom import headroom_lines
from collage.report.text.operator_summary import summarize_operators
from collage.report.text.predictions import misprediction_lines, predicted_against_measured
from collage.report.text.refusal_groups import group_refusals
from collage.report.text.tables import search_lines
from collage.report.text.why import why
from collage.runtime.package.plan import described

_COLOURS = 8
"""Colours that the style sheet has for toolchains."""
_MOST_ROWS = 200
"""Kernels that the table lists: the costliest."""
_THIN = 0.002
"""Share of the time below which neighbours are one piece of the strip."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One contender as a bar with its interval; places are in per cent of the longest.

    Attributes:
        name: Name of the contender.
        what: Kind, toolchains and number of kernels.
        failed: Why it has no latency; empty if it has one.
        length: Length of the bar.
        low: Lower end of the interval.
        high: Upper end of the interval.
        latency: Median and interval as text.
        ratio: Ratio to the best single toolchain and its interval, as text.
        called: The same for runs as users call them.
        is_first: Whether it is the plan that was kept.
    """

    name: str
    what: str
    failed: str = ""
    length: float = 0.0
    low: float = 0.0
    high: float = 0.0
    latency: str = ""
    ratio: str = ""
    called: str = ""
    is_first: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kernel in the table of predictions.

    Attributes:
        id: The region.
        title: Its title.
        operators: Its operators in a few words.
        colour: Class of its toolchain's colour.
        predicted: Predicted microseconds.
        measured: Measured microseconds.
        change: How far the measured time is from the predicted one.
        predicted_length: Length of the bar for the predicted time, in per cent of the longest bar.
        measured_length: The same for the measured time; 0 if there is none.
        share: Share of the time.
        error: Error at its boundary.
        why: Why it is on its target, and what became of the others.
    """

    id: str
    title: str
    operators: str
    colour: str
    predicted: str
    measured: str
    change: str
    predicted_length: float
    measured_length: float
    share: str
    error: str
    why: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of the strip that shows where the time goes, in execution order.

    Attributes:
        region: The region that it leads to.
        title: What it is.
        colour: Class of its toolchain's colour; empty for several.
        share: Share of the time in per cent.
    """

    region: str
    title: str
    colour: str
    share: float


def shown_plan(record: Record, titles: Mapping[str, str], number: int, *, drawn: bool) -> dict[str, Any]:
    """Return what the template shows of a plan, by the template's names.

    Args:
        record: Record of the plan.
        titles: Title of each region, by id.
        number: Number of the plan on the page, from 1.
        drawn: Whether there are pictures.
    """
    by_target = colours(record)
    costliest = sorted(record.regions, key=lambda region: (-region.time_us, region.id))[:_MOST_ROWS]
    listed = {region.id for region in costliest}
    return {
        "number": number,
        "name": record.model.name,
        "shapes": described(record.model.input_shapes),
        "decision": record.decision,
        "tiles": _tiles(record),
        "noise": noise_lines(record),
        "bars": bars(record.comparison),
        "best_single": record.comparison.best_single,
        "drawn": drawn,
        "colours": by_target,
        "strip": strip(record, titles, by_target),
        "predicted": predicted_against_measured(record),
        "mispredicted": misprediction_lines(record),
        "rows": [_row(region, record, titles, by_target) for region in record.regions if region.id in listed],
        "unlisted": len(record.regions) - len(listed),
        "history": history_chart(record),
        "headroom": headroom_lines(record),
        "accuracy": [accuracy(record), *([metric_line(record.metric)] if record.metric is not None else [])],
        "unchecked": sorted(record.unchecked.items()),
        "coverage": coverage_lines(record, everything=True),
        "refusals": group_refusals(record.refusals),
        "unusable": [(each.name, each.unusable) for each in record.toolchains if each.unusable],
        "search": search_lines(record.search),
        "notes": record.notes,
        "machine": _machine(record),
        "toolchains": [each for each in record.toolchains if each.fingerprint],
        "commands": commands(record),
    }


def colours(record: Record) -> dict[str, str]:
    """Return the class of the colour of each target in the plan, in order of appearance."""
    targets = dict.fromkeys(region.target for region in record.regions)
    return {target: f"c{number % _COLOURS}" for number, target in enumerate(targets)}


def _tiles(record: Record) -> list[tuple[str, str]]:
    """Return the figures that matter most, each with its name."""
    comparison = record.comparison
    tiles = []
    if record.measured_ms is not None:
        tiles.append(("latency, median", f"{figures.milliseconds(record.measured_ms)} ms"))
    if comparison.speedup_vs_best_single and comparison.speedup_ci95:
        low, high = (1 / each for each in reversed(comparison.speedup_ci95))
        ratio = figures.ratio(1 / comparison.speedup_vs_best_single)
        tiles.append((f"of {comparison.best_single}'s time", f"{ratio} {figures.interval((low, high), 3)}"))
    tiles += [
        ("kernels", str(len(record.regions))),
        ("largest output error", figures.error(record.max_error)),
    ]
    return tiles


def noise_lines(record: Record) -> list[str]:
    """Return how noisy the machine was while the plan was timed."""
    kept = record.comparison.contenders[0] if record.comparison.contenders else None
    if kept is None or kept.latency_ms is None:
        return []
    latency = kept.latency_ms
    half = (latency.ci95[1] - latency.ci95[0]) / 2
    lines = [
        f"The interval of the plan's median is ±{figures.percent(half, latency.p50)} wide over "
        f"{figures.counted(latency.n, 'run')}; one run in ten took over {figures.milliseconds(latency.p90)} ms "
        f"({figures.change(latency.p90, latency.p50)})."
    ]
    if kept.usual_ms:
        lines.append(
            f"The machine ran at {figures.significant(kept.usual_ms / latency.p50, 3)} of its usual speed then: at "
            f"that speed the plan takes {figures.milliseconds(kept.usual_ms)} ms."
        )
    return lines


def bars(comparison: Comparison) -> list[Bar]:
    """Return the contenders as bars, in the order given."""
    longest = max((c.latency_ms.ci95[1] for c in comparison.contenders if c.latency_ms), default=0.0)
    return [_bar(contender, longest, first=number == 0) for number, contender in enumerate(comparison.contenders)]


def _bar(contender: ContenderFacts, longest: float, *, first: bool) -> Bar:
    kernels = f", {figures.counted(contender.regions, 'kernel')}" if contender.regions else ""
    exact = "" if contender.exact else ", not in the model's own types"
    what = f"{contender.kind}: {', '.join(contender.toolchains)}{kernels}{exact}"
    latency = contender.latency_ms
    if latency is None:
        return Bar(name=contender.name, what=what, failed=contender.failed or "failed", is_first=first)
    ratio = _ratio(contender.ratio, contender.ratio_ci95)
    called = contender.as_called
    as_called = ""
    if called is not None:
        as_called = ", ".join(filter(None, (_timed(called.latency_ms), _ratio(called.ratio, called.ratio_ci95))))
    return Bar(
        name=contender.name,
        what=what,
        length=_per_cent(latency.p50, longest),
        low=_per_cent(latency.ci95[0], longest),
        high=_per_cent(latency.ci95[1], longest),
        latency=_timed(latency),
        ratio=ratio,
        called=as_called,
        is_first=first,
    )


def _timed(latency: LatencyFacts) -> str:
    return f"{figures.milliseconds(latency.p50)} ms {figures.interval(latency.ci95)}"


def _ratio(ratio: float | None, interval: tuple[float, float] | None) -> str:
    if ratio is None or interval is None:
        return ""
    return f"{figures.ratio(ratio)} {figures.interval(interval, 3)}"


def strip(record: Record, titles: Mapping[str, str], by_target: Mapping[str, str]) -> list[Piece]:
    """Return the pieces of the strip: a kernel each, or neighbours that together take next to nothing."""
    whole = sum(region.time_us for region in record.regions)
    pieces: list[Piece] = []
    thin: list[RegionFacts] = []

    def close() -> None:
        if thin:
            share = sum(region.time_us for region in thin) / whole
            names = {by_target[region.target] for region in thin}
            title = titles[thin[0].id] if len(thin) == 1 else f"{len(thin)} kernels, {thin[0].id} to {thin[-1].id}"
            colour = names.pop() if len(names) == 1 else ""
            pieces.append(Piece(region=thin[0].id, title=title, colour=colour, share=round(100 * share, 3)))
            thin.clear()

    for region in record.regions if whole > 0 else ():
        share = region.time_us / whole
        if share < _THIN:
            thin.append(region)
            continue
        close()
        colour = by_target[region.target]
        pieces.append(Piece(region=region.id, title=titles[region.id], colour=colour, share=round(100 * share, 3)))
    close()
    return pieces


def _row(region: RegionFacts, record: Record, titles: Mapping[str, str], by_target: Mapping[str, str]) -> Row:
    longest = max(max(each.cost_us, each.time_us) for each in record.regions)
    whole = sum(each.time_us for each in record.regions)
    return Row(
        id=region.id,
        title=titles[region.id],
        operators=summarize_operators(region.operators),
        colour=by_target[region.target],
        predicted=figures.microseconds(region.cost_us),
        measured=figures.microseconds(region.measured_us),
        change=figures.change(region.measured_us, region.cost_us),
        predicted_length=_per_cent(region.cost_us, longest),
        measured_length=_per_cent(region.measured_us or 0.0, longest),
        share=figures.percent(region.time_us, whole),
        error=figures.error(region.error),
        why=tuple(why(region, record)),
    )


def _machine(record: Record) -> list[tuple[str, str]]:
    model, host = record.model, record.host
    given = f" ({model.nodes_as_given} as given)" if model.nodes_as_given != model.nodes else ""
    cores = figures.counted(host.physical_cores, "core")
    return [
        ("model", f"{model.name}, {figures.counted(model.nodes, 'node')}{given}, sha256 {model.sha256}"),
        ("machine", f"{host.cpu}, {cores}, {figures.size(host.memory_bytes)}, {host.system}"),
        ("threads", str(record.threads)),
        ("collage", f"{record.collage_version}, Python {host.python}"),
        ("made", record.created),
        ("preset, seed", f"{record.preset}, {record.seed}"),
    ]


def commands(record: Record) -> list[str]:
    """Return the commands that make the plan again and look at it, as a shell takes them.

    What the record does not keep is not in them: pins, preferences, samples, the budget. A plan that was given is not
    made again.
    """
    model = record.model.name
    package = f"{model.removesuffix('.onnx')}.collage"
    optimize = ["collage", "optimize", model, "-o", package]
    used = [toolchain.name for toolchain in record.toolchains if toolchain.targets]
    if used:
        optimize += ["--toolchains", ",".join(used)]
    for name, shape in record.model.input_shapes.items():
        optimize += ["--input-shapes", described({name: shape})]
    optimize += ["--preset", record.preset, "--seed", str(record.seed), "--threads", str(record.threads)]
    method = record.search.method
    optimize += ["--search", "exact" if method == "beam" else method]
    if record.max_error_allowed > 0 and record.metric is None:
        optimize += ["--max-error", f"{record.max_error_allowed:g}"]
    if record.deterministic:
        optimize += ["--deterministic"]
    others = (
        ["collage", "explain", package],
        ["collage", "bench", package, "--compare"],
        ["collage", "compare", model, package],
    )
    return [shlex.join(each) for each in ((optimize, *others) if record.search.took_place else others)]


def _per_cent(part: float, whole: float) -> float:
    return round(100 * part / whole, 3) if whole > 0 else 0.0
