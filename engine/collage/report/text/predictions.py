"""Set predicted times against measured ones, and say where they differ by more than measurements do."""

from __future__ import annotations

from collage.report import figures
from collage.report.facts.record import ContenderFacts, Record

FAR_OFF = 0.1
"""Relative difference between prediction and measurement above which a report points it out.

Twice what repeated measurements of one kernel differ by (`explanation.NEAR_TIE`): the rest is the model's of costs.
"""

_WEIGHTY = 0.02
"""Share of the plan's time that a region has to be off by to be listed."""

_SHOWN = 4


def predicted_against_measured(record: Record) -> str:
    """Format the plan's predicted cost next to the measured end-to-end time."""
    measured = "not measured end to end"
    if record.measured_ms is not None:
        measured = f"{figures.milliseconds(record.measured_ms)} ms end to end"
        if record.prediction_error is not None:
            measured += f" ({_off(record.comparison.contenders[0], record.measured_ms)})"
    predicted = f"predicted {figures.milliseconds(record.predicted_ms)} ms"
    if record.device_copies:
        copies_ms = sum(copy.cost_us for copy in record.device_copies) / 1000
        predicted += f" (device copies {figures.milliseconds(copies_ms)} ms)"
    return f"{predicted}, measured {measured}"


def misprediction_lines(record: Record) -> tuple[str, ...]:
    """Return what was predicted wrongly by more than `FAR_OFF`: the plan, other contenders, the plan's regions."""
    # the plan that was kept is there a second time, under the name of its only toolchain
    kept = record.comparison.contenders[0].latency_ms if record.comparison.contenders else None
    plan = [_plan(record)] if _is_far(record.prediction_error) else []
    others = [
        f"{each.name} was predicted to take {figures.milliseconds(each.predicted_ms)} ms and takes "
        f"{figures.milliseconds(each.latency_ms.p50)} ms ({_off(each, each.latency_ms.p50)})"
        for each in record.comparison.contenders[1:]
        if each.latency_ms is not None and each.latency_ms != kept and _is_far(each.prediction_error)
    ]
    whole_us = sum(region.time_us for region in record.regions)
    regions = [
        region
        for region in record.regions
        if _is_far(region.prediction_error) and abs(region.off_us) > _WEIGHTY * whole_us
    ]
    regions.sort(key=lambda region: (-abs(region.off_us), region.id))
    lines = [
        f"{region.id} ({region.target}) was predicted to take {figures.microseconds(region.cost_us)} us and takes "
        f"{figures.microseconds(region.measured_us)} us in place ({figures.change(region.measured_us, region.cost_us)})"
        for region in regions[:_SHOWN]
    ]
    if len(regions) > _SHOWN:
        lines.append(
            f"and {figures.counted(len(regions) - _SHOWN, 'region')} more are off by over {figures.percent(FAR_OFF, 1)}"
        )
    return (*plan, *others, *lines)


def _plan(record: Record) -> str:
    return (
        f"the prediction is off by more than {figures.percent(FAR_OFF, 1)}: the plan was predicted to take "
        f"{figures.milliseconds(record.predicted_ms)} ms and takes {figures.milliseconds(record.measured_ms)} ms "
        f"({_off(record.comparison.contenders[0], record.measured_ms)}); the measured time decided"
    )


def _off(contender: ContenderFacts, measured_ms: float | None) -> str:
    """Format how far a contender is off its prediction, and why that is not the quotient of both numbers."""
    text = figures.change(contender.usual_ms, contender.predicted_ms)
    as_timed = figures.change(measured_ms, contender.predicted_ms)
    return text if text == as_timed else f"{text} at the machine's usual speed"


def _is_far(error: float | None) -> bool:
    return error is not None and abs(error) > FAR_OFF
