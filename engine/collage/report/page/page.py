"""Write the report of a package as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import Any

from collage.report import figures
from collage.report.facts.record import Record, RegionFacts
from collage.report.page.sections import colours, shown_plan
from collage.report.picture.drawing import Picture
from collage.report.picture.titles import region_titles
from collage.report.text.headroom import ABOVE, peak_name, work
from collage.report.text.why import why

_TEMPLATES = "template"
_MOST_NAMES = 400
"""Nodes of a kernel that the page names."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPlan:
    """One plan of a report.

    Attributes:
        record: Record of the plan.
        pictures: Pictures of its graph, the first one first; empty if only the record is known.
        titles: Title of each region, by id.
    """

    record: Record
    pictures: Sequence[Picture] = ()
    titles: Mapping[str, str]

    @classmethod
    def of_record(cls, record: Record) -> ReportedPlan:
        """Return a plan of which only the record is known."""
        return cls(record=record, titles=region_titles(record.regions))


def report_page(plans: Sequence[ReportedPlan], source: str) -> str:
    """Return a report as HTML.

    Names from models are escaped: a page of a hostile model runs nothing of it.

    Args:
        plans: The plans, one or one for each set of input shapes.
        source: Name of the file that the report is about.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collage.report.page", _TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = [_data(plan) for plan in plans]
    page = environment.get_template("report.html.jinja").render(
        source=source,
        plans=[
            shown_plan(plan.record, plan.titles, number, drawn=bool(plan.pictures))
            for number, plan in enumerate(plans, start=1)
        ],
        version=plans[0].record.collage_version,
        data=_inert(data),
        style=_asset("report.css"),
        script=_asset("report.js"),
    )
    return str(page)


def _asset(name: str) -> Any:
    """Return a file of ours to be written into the page as it is."""
    import markupsafe

    folder = importlib.resources.files("collage.report.page") / _TEMPLATES
    return markupsafe.Markup((folder / name).read_text(encoding="utf-8"))


def _inert(data: Any) -> Any:
    """Return JSON that can stand inside a script element: nothing in it ends the element or begins a comment."""
    import markupsafe

    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return markupsafe.Markup(text)


def _data(plan: ReportedPlan) -> dict[str, Any]:
    """Return what the page's script draws."""
    record = plan.record
    whole_us = sum(region.time_us for region in record.regions)
    by_target = colours(record)
    return {
        "levels": {picture.level.key: _level(picture, record, by_target) for picture in plan.pictures},
        "regions": {
            region.id: {**_region(region, record, whole_us), "title": plan.titles[region.id]}
            for region in record.regions
        },
    }


def _level(picture: Picture, record: Record, by_target: Mapping[str, str]) -> dict[str, Any]:
    """Return a picture; names are short, because a large model has ten thousand boxes."""
    regions = {region.id: by_target[region.target] for region in record.regions}
    return {
        "title": picture.level.title,
        "above": picture.level.above,
        "width": picture.width,
        "height": picture.height,
        "boxes": [
            {
                "at": [each.x, each.y, each.width, each.height],
                **_without_empty(
                    key=each.box.key,
                    kind=each.box.kind,
                    label=each.box.label,
                    detail=each.box.detail,
                    region=each.box.region,
                    colour=regions.get(each.box.region, ""),
                    opens=each.box.opens,
                    value=_value(picture, each.box.writes or each.box.reads),
                ),
            }
            for each in picture.boxes
        ],
        "lines": [[line.source, line.sink, line.path, line.values] for line in picture.lines],
    }


def _value(picture: Picture, names: Sequence[str]) -> str:
    """Return the types and shapes of the values that a box computes, or else reads."""
    values = picture.level.values
    return ", ".join(f"{name} {values[name]}" for name in names if name in values)


def _region(region: RegionFacts, record: Record, whole_us: float) -> dict[str, Any]:
    reasons = list(why(region, record))
    facts = [
        ("target", region.target),
        ("pattern", region.composite),
        ("predicted", f"{figures.microseconds(region.cost_us)} us{_repeats(region)}"),
        (
            "measured in place",
            f"{figures.microseconds(region.measured_us)} us" if region.measured_us else "not measured",
        ),
        ("share of the time", figures.percent(region.time_us, whole_us)),
        ("error at its boundary", figures.error(region.error)),
        ("of the machine", _of_peak(region)),
        ("8-bit products", _precision(region)),
    ]
    return {
        "facts": [[name, text] for name, text in facts if text],
        "why": reasons[0],
        "others": reasons[1:],
        "operators": [[operator, name] for operator, name in zip(region.operators, region.nodes, strict=False)][
            :_MOST_NAMES
        ],
        "count": len(region.nodes),
    }


def _repeats(region: RegionFacts) -> str:
    if region.cost_ci95_us is None:
        return ""
    low, high = map(figures.microseconds, region.cost_ci95_us)
    return f" [{low}, {high}]"


def _of_peak(region: RegionFacts) -> str:
    if region.limit is None or region.share_of_peak is None:
        return ""
    share = f"{figures.whole_percent(region.share_of_peak)} of {peak_name(region.limit)}: {work(region.limit)}"
    return f"{share}; {ABOVE}" if region.share_of_peak > 1 else share


def _precision(region: RegionFacts) -> str:
    precision = region.precision
    if precision is None:
        return ""
    return f"{len(precision.int8)} of {precision.products}, expected error {figures.error(precision.error)}"


def _without_empty(**given: str) -> dict[str, str]:
    return {name: text for name, text in given.items() if text}
