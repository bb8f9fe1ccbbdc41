"""Say how far the outputs of a plan are off, and what it reaches in the user's metric."""

from __future__ import annotations

from collage.report import figures
from collage.report.facts.precision_facts import MetricFacts
from collage.report.facts.record import Record


def accuracy(record: Record) -> str:
    """Return how far the outputs of a plan are off, in sentences.

    Args:
        record: Record of the optimization.
    """
    text = f"Largest output error on inputs not used in the search: {figures.error(record.max_error)} of its scale"
    if record.max_error_allowed > 0:
        largest: dict[str, float] = {}
        for region in record.regions:
            largest[region.target] = max(largest.get(region.target, 0.0), region.error)
        each = ", ".join(f"{name} {figures.error(error)}" for name, error in sorted(largest.items()))
        return (
            f"{text}; {allowed(record)}, so inexact targets took part. "
            f"Largest error at the boundary of a kernel: {each}."
        )
    return f"{text}; only targets that compute in the model's own types took part."


def allowed(record: Record) -> str:
    """Return what was allowed, as a part of a sentence.

    Args:
        record: Record of an optimization with a bound.
    """
    bound = f"up to {record.max_error_allowed:g} was allowed"
    return (
        bound if record.metric is None else f"{bound}, and a drop of {record.metric.max_drop:g} in {record.metric.name}"
    )


def metric_line(metric: MetricFacts) -> str:
    """Return what a plan reaches in the user's metric, as a sentence without a stop.

    Args:
        metric: What it reaches.
    """
    which = "that decided nothing" if metric.held_out else "that also decided"
    drop = f"a drop of {metric.drop:.4g}" if metric.drop > 0 else "no drop"
    return (
        f"{metric.name} {metric.of_plan:.6g}, and {metric.of_model:.6g} of the model in its own types, on "
        f"{figures.counted(metric.samples, 'sample')} {which}: {drop}, {metric.max_drop:g} allowed"
    )
