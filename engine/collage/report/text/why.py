"""Say why a region went to its target, and not to another that is cheaper by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collage.report import figures
from collage.report.facts.record import AlternativeFacts, Record, RegionFacts

NEAR_TIE = 0.05
"""Relative cost difference below which the choice could have gone either way: measurements repeat no better."""


def why(region: RegionFacts, record: Record) -> Iterator[str]:
    """Yield the reason for a region's target, then each alternative."""
    priced = sorted((a for a in region.alternatives if a.cost_us is not None), key=lambda a: (a.cost_us, a.target))
    refused = sorted((a for a in region.alternatives if a.cost_us is None), key=lambda a: a.target)
    cheaper = [a for a in priced if a.cost_us is not None and a.cost_us < region.compared_us]
    if not region.alternatives:
        reason = "no other target was asked"
    elif not priced:
        unmeasured = [a.target for a in refused if not a.measured]
        reason = f"not measured here: {', '.join(unmeasured)}" if unmeasured else "no other target can take it"
    elif not cheaper:
        reason = "it is the cheapest here"
    elif not record.search.took_place:
        reason = "the plan was given; by itself it is not the cheapest here"
    elif len(record.regions) == 1:
        reason = _end_to_end(region, cheaper, record)
    else:
        reason = f"not the cheapest here alone; {_as_part(cheaper, record)}"
    alone = "" if region.compared_us == region.cost_us else f" ({figures.microseconds(region.compared_us)} us alone)"
    yield f"why {region.target}{alone}: {reason}"
    for alternative in priced:
        assert alternative.cost_us is not None
        change = figures.change(alternative.cost_us, region.compared_us)
        cost = f"{figures.microseconds(alternative.cost_us)} us ({change})"
        tie = ", a near tie" if is_near_tie(region, alternative) else ""
        how = f": {alternative.reason}" if alternative.reason else ""
        yield f"{alternative.target} {cost}{tie}{how}"
    for alternative in refused:
        has = "has no way" if alternative.measured else "is not known"
        yield f"{alternative.target} {has}: {alternative.reason or 'no reason given'}"


def is_near_tie(region: RegionFacts, alternative: AlternativeFacts) -> bool:
    """Return whether the costs of a region and of an alternative are too close to decide between them."""
    cost = alternative.cost_us
    return cost is not None and abs(cost - region.compared_us) <= NEAR_TIE * region.compared_us


def _end_to_end(region: RegionFacts, cheaper: Sequence[AlternativeFacts], record: Record) -> str:
    """Return why the plan is this one kernel although others were measured to be cheaper by themselves."""
    by_name = {contender.name: contender for contender in record.comparison.contenders[1:]}
    fared = []
    for alternative in cheaper:
        contender = by_name.get(alternative.target)
        if contender is None:
            fared.append(f"{alternative.target} was not timed")
        elif contender.latency_ms is None:
            fared.append(f"{alternative.target} failed")
        else:
            fared.append(f"{alternative.target} {figures.milliseconds(contender.latency_ms.p50)} ms")
    names = " and ".join(alternative.target for alternative in cheaper)
    if record.measured_ms is None:
        return f"measured by itself {names} is cheaper; the plan was not timed end to end"
    own = f"{region.target} {figures.milliseconds(record.measured_ms)} ms"
    return f"measured by itself {names} is cheaper, but times end to end decide: {', '.join([own, *fared])}"


def _as_part(cheaper: Sequence[AlternativeFacts], record: Record) -> str:
    """Return why a region of several is not on one of the targets that are cheaper for it by itself."""
    if all(alternative.excluded_by for alternative in cheaper):
        return "no cheaper target can share a plan with the others"
    if record.device_copies:
        return "copies between devices count as well"
    return "the plan was chosen as a whole, by its time end to end"
