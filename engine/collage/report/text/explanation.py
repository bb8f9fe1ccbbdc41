"""Explain each region's assignment in plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from collage.report import figures
from collage.report.facts.device_facts import DeviceFacts
from collage.report.facts.precision_facts import PrecisionFacts
from collage.report.facts.record import ContenderFacts, Record, RegionFacts
from collage.report.text.accuracy import accuracy, allowed, metric_line
from collage.report.text.coverage import coverage_lines
from collage.report.text.headroom import ABOVE, headroom_lines, peak_name, work
from collage.report.text.operator_summary import summarize_operators
from collage.report.text.predictions import misprediction_lines, predicted_against_measured
from collage.report.text.refusal_groups import RefusalGroup, group_refusals
from collage.report.text.tables import RETRYING, search_lines
from collage.report.text.why import NEAR_TIE, is_near_tie, why

WIDTH = 100
_NODES_SHOWN = 4
_COPIES_SHOWN = 6
_RANGES = {
    "minmax": "those of all numbers in the calibration samples",
    "percentile": "the narrowest that hold 99.99 % of the numbers in the calibration samples",
    "entropy": "those that lose least information of the numbers in the calibration samples",
}
"""By the name of the option."""


def explain(record: Record, *, width: int = WIDTH, everything: bool = False) -> str:
    """Explain a plan as text.

    Args:
        record: Results of `optimize`.
        width: Columns to fill.
        everything: Whether to name every node of every region and refusal.
    """
    writer = _Writer(width)
    _decision(writer, record)
    _regions(writer, record, everything)
    _device_copies(writer, record, everything)
    _device_work(writer, record)
    _near_ties(writer, record)
    _headroom(writer, record)
    _refusals(writer, record, everything)
    _how(writer, record)
    return writer.text()


class _Writer:
    """Collects wrapped lines."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[str] = []

    def heading(self, text: str) -> None:
        if self._lines:
            self._lines.append("")
        self._lines += [text, "-" * len(text)]

    def say(self, text: str, indent: int = 0) -> None:
        pad = " " * indent
        # names and targets are never broken: one can be searched for
        self._lines += textwrap.wrap(
            text,
            self._width,
            initial_indent=pad,
            subsequent_indent=pad + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _decision(writer: _Writer, record: Record) -> None:
    model = record.model
    writer.heading(f"The plan for {model.name}")
    writer.say(record.decision)
    writer.say(predicted_against_measured(record) + ".")
    for line in misprediction_lines(record):
        writer.say(line, indent=2)
    comparison = record.comparison
    if comparison.speedup_vs_best_single and comparison.speedup_ci95:
        low, high = (1 / each for each in reversed(comparison.speedup_ci95))
        writer.say(
            f"It takes {1 / comparison.speedup_vs_best_single:.3f} of the time of the best single toolchain, "
            f"{comparison.best_single}, 95 % interval {figures.interval((low, high), 3)}."
        )
    for contender in comparison.contenders:
        writer.say(_contender(contender), indent=2)
    writer.say(accuracy(record))
    if record.metric is not None:
        writer.say(f"{metric_line(record.metric)}.")
    if record.ranges:
        writer.say(f"Ranges of 8-bit integers are {_RANGES.get(record.ranges, 'chosen')} (--ranges {record.ranges}).")
    if record.nan:
        writer.say(f"{record.nan[0].upper()}{record.nan[1:]}.")
    if record.deterministic:
        writer.say("Only kernels that give the same bits each time took part (--deterministic).")
    if record.unchecked:
        writer.say("Not independently checked:")
        for name, reason in sorted(record.unchecked.items()):
            writer.say(f"{name}: {reason}", indent=2)


def _contender(contender: ContenderFacts) -> str:
    if contender.latency_ms is None:
        return f"{contender.name}: failed: {contender.failed}"
    latency = contender.latency_ms
    text = f"{contender.name}: {figures.milliseconds(latency.p50)} ms {figures.interval(latency.ci95)}"
    if contender.predicted_ms:
        text += f", predicted {figures.milliseconds(contender.predicted_ms)} ms"
    return text + (f", {figures.counted(contender.regions, 'kernel')}" if contender.regions else "")


def _regions(writer: _Writer, record: Record, everything: bool) -> None:
    writer.heading(f"Regions ({len(record.regions)}, in execution order)")
    whole = sum(region.time_us for region in record.regions)
    for region in record.regions:
        share = figures.percent(region.time_us, whole)
        nodes = figures.counted(len(region.nodes), "node")
        writer.say(f"{region.id}  {region.target}: {nodes}, {share} of the time", indent=0)
        times = f"{figures.microseconds(region.cost_us)} us predicted"
        if region.cost_ci95_us is not None:
            low, high = map(figures.microseconds, region.cost_ci95_us)
            times += f" [{low}, {high}] by how far measurements repeat here"
        if region.measured_us:
            change = figures.change(region.measured_us, region.cost_us)
            times += f", {figures.microseconds(region.measured_us)} us in place ({change})"
        writer.say(f"{times}; error at its boundary {figures.error(region.error)}", indent=4)
        pattern = f"; pattern {region.composite}" if region.composite else ""
        writer.say(f"computes {summarize_operators(region.operators, width=80)}{pattern}", indent=4)
        writer.say(f"nodes {_some(region.nodes, everything)}", indent=4)
        if region.precision is not None:
            writer.say(_precision(region.precision, record), indent=4)
        if (limited := _limited(region)) is not None:
            writer.say(limited, indent=4)
        for line in why(region, record):
            writer.say(line, indent=4)


def _precision(precision: PrecisionFacts, record: Record) -> str:
    """Return in which precision a region's products are, and what that is expected to do to the outputs."""
    count = figures.counted(precision.products, "product")
    what = "with weights in" if precision.weights_alone else "in"
    text = (
        f"{len(precision.int8)} of {count} {what} 8-bit integers; expected to add {figures.error(precision.error)} "
        f"to the error of the outputs, {figures.whole_percent(precision.share)} of its square"
    )
    if precision.stopped:
        text += (
            f"; next would be {', '.join(map(repr, precision.stopped))}, with which an error of "
            f"{figures.error(precision.stopped_error)} is expected, and {allowed(record)}"
        )
    return text


def _limited(region: RegionFacts) -> str | None:
    """Return how near a region is to what the machine allows; None if nothing is known of the machine."""
    limit, share = region.limit, region.share_of_peak
    if limit is None:
        return None
    if share is None:
        return f"what the machine allows is not estimated: {limit.not_estimated or 'it has no work'}"
    least = f"at least {figures.microseconds(limit.least_us)} us for {work(limit)}"
    above = f"; {ABOVE}" if share > 1 else ""
    return f"by estimate at {figures.whole_percent(share)} of {peak_name(limit)}: {least}{above}"


def _headroom(writer: _Writer, record: Record) -> None:
    writer.heading("How much better a plan could be")
    for line in headroom_lines(record):
        writer.say(line)
    machine = record.machine
    if machine is None:
        return
    products = [f"{each.arithmetic} {each.gflop_per_s:,.0f} GFLOP/s (a product by {each.by})" for each in machine.peaks]
    levels = [
        f"{each.level}{f' ({figures.size(each.holds_bytes)})' if each.holds_bytes else ''} {each.gb_per_s:,.0f} GB/s"
        for each in machine.bandwidths
    ]
    peaks = "; ".join(", ".join(each) for each in (products, levels) if each) or "none"
    writer.say(f"measured peaks, with {figures.counted(machine.threads, 'thread')}: {peaks}")
    if machine.missing:
        writer.say(f"some peaks are missing: {machine.missing}")
    writer.say(
        "The estimate compares operations and bytes with these peaks (a roofline). It proves nothing: a plan may be "
        "faster, and what is left may be out of any library's reach."
    )


def _near_ties(writer: _Writer, record: Record) -> None:
    ties = [
        (region, alternative)
        for region in record.regions
        for alternative in region.alternatives
        if is_near_tie(region, alternative)
    ]
    if not ties:
        return
    writer.heading("Near ties")
    writer.say(
        f"Costs within {figures.percent(NEAR_TIE, 1)} of each other may fall the other way on another day. "
        "With the same tuning database and seed they fall the same way."
    )
    for region, alternative in ties:
        writer.say(
            f"{region.id}: {region.target} {figures.microseconds(region.compared_us)} us, "
            f"{alternative.target} {figures.microseconds(alternative.cost_us)} us",
            indent=2,
        )


def _refusals(writer: _Writer, record: Record, everything: bool) -> None:
    lines = coverage_lines(record, everything=True, reasons=everything)
    groups = group_refusals(record.refusals)
    if not lines and not groups:
        return
    writer.heading("Who took what, and what was refused")
    for line in lines:
        writer.say(line)
    for group in groups:
        writer.say(_refusal(group, everything), indent=2)
    if any(group.remembered for group in groups):
        writer.say(f"{RETRYING}.")


def _refusal(group: RefusalGroup, everything: bool) -> str:
    where = f" on {_some(group.nodes, everything)}" if group.nodes else ""
    times = f"{group.refusals} times " if group.refusals > 1 else ""
    return f"{group.target} refused {times}({group.stage}){where}: {group.text}"


def _how(writer: _Writer, record: Record) -> None:
    writer.heading("How it was found")
    model, host = record.model, record.host
    given = f" (as given: {model.nodes_as_given})" if model.nodes_as_given != model.nodes else ""
    writer.say(f"{model.name}: {figures.counted(model.nodes, 'node')}{given}, sha256 {model.sha256}")
    cores = figures.counted(host.physical_cores, "core")
    threads = figures.counted(record.threads, "thread")
    writer.say(f"{host.cpu}, {cores}, {figures.size(host.memory_bytes)}, {host.system}; {threads}")
    writer.say(
        f"collage {record.collage_version}, Python {host.python}, {record.created}; "
        f"preset {record.preset}, seed {record.seed}"
    )
    for toolchain in record.toolchains:
        if toolchain.fingerprint:
            targets = ", ".join(toolchain.targets)
            plugin = toolchain.plugin or toolchain.distribution
            writer.say(f"{toolchain.name}: {toolchain.fingerprint}, by {plugin}; targets {targets}")
    for line in search_lines(record.search):
        writer.say(line)
    for note in record.notes:
        writer.say(f"note: {note}")


def _device_copies(writer: _Writer, record: Record, everything: bool) -> None:
    copies = record.device_copies
    if not copies:
        return
    writer.heading(f"Device copies ({len(copies)})")
    writer.say(
        f"{figures.microseconds(sum(copy.cost_us for copy in copies))} us of what is predicted, for "
        f"{figures.size(sum(copy.size_bytes for copy in copies))}"
    )
    dearest = sorted(copies, key=lambda copy: (-copy.cost_us, copy.value, copy.destination))
    for copy in dearest if everything else dearest[:_COPIES_SHOWN]:
        writer.say(
            f"{copy.value}: {copy.source} to {copy.destination}, {figures.size(copy.size_bytes)}, "
            f"{figures.microseconds(copy.cost_us)} us",
            indent=2,
        )
    if not everything and len(copies) > _COPIES_SHOWN:
        writer.say(f"and {len(copies) - _COPIES_SHOWN} more", indent=2)


def _device_work(writer: _Writer, record: Record) -> None:
    if record.device_work.is_none and not record.devices:
        return
    writer.heading("Devices")
    if not record.device_work.is_none:
        writer.say(f"Each run: {record.device_work.counts()}")
        for reason, kernels in record.device_work.eager_reasons():
            writer.say(f"{figures.counted(kernels, 'kernel')} launched one by one: {reason}", indent=2)
    for device in record.devices:
        writer.say(f"{device.name}: {_taken(device)}")


def _taken(device: DeviceFacts) -> str:
    copies = "; ".join(
        f"{way} {figures.microseconds(speed.latency_us)} us and {speed.gb_per_s:.1f} GB/s"
        for way, speed in (
            ("copies from the host", device.to_device),
            ("to the host", device.from_device),
            ("within", device.within),
        )
    )
    if device.assumed:
        return f"{copies}, assumed: not measured, since {device.assumed}"
    cache = f"; last-level cache {figures.size(device.cache_bytes)}" if device.cache_bytes else ""
    return (
        f"{copies}; launching a graph behind a copy {figures.microseconds(device.start_us)} us more, "
        f"being waited for {figures.microseconds(device.wait_us)} us, all measured{cache}"
    )


def _some(names: Sequence[str], everything: bool) -> str:
    if everything or len(names) <= _NODES_SHOWN:
        return ", ".join(names)
    head = _NODES_SHOWN - 1
    return f"{', '.join(names[:head])}, ... {names[-1]} ({len(names)} in all)"
