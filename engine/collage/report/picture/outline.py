"""Decide what is drawn in which picture: a model as levels of boxes, each small enough to be read.

The first level has the kernels and what lies between them. A kernel opens a level with its operators. A level with more
boxes than can be read is cut into groups of neighbours, which open levels of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir

from collage.report import figures
from collage.report.facts.record import Record, RegionFacts
from collage.report.picture.titles import region_titles
from collage_core.ir.graph.walk import captured_values
from collage_core.ir.values.content import constant_of
from collage_core.passes.call_sites import CallSite, call_sites

MOST_BOXES = 120
"""Boxes of a picture beyond which neighbours are grouped."""
_MOST_ENDS = 24
"""Inputs, and outputs, of a level that have a box each."""
ROOT = "model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What is drawn as one box.

    Attributes:
        key: Unique among all levels.
        kind: `"kernel"`, `"operator"`, `"group"`, `"input"` or `"output"`.
        label: First line.
        detail: Second line.
        region: Id of the kernel that it is or is part of; empty if it is outside of all.
        share: Share of the plan's time; 0 for what is not a kernel.
        reads: Names of the values that it reads.
        writes: Names of the values that it computes.
        opens: Key of the level that it opens; empty if there is none.
    """

    key: str
    kind: str
    label: str
    detail: str = ""
    region: str = ""
    share: float = 0.0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    opens: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What is drawn as one picture.

    Attributes:
        key: Unique; `ROOT` of the first.
        title: What it shows.
        above: Key of the level from which it is opened; empty for the first.
        boxes: In execution order.
        values: Type and shape of the values between the boxes, as text, by name.
    """

    key: str
    title: str
    above: str
    boxes: tuple[Box, ...]
    values: Mapping[str, str]


def outlined(model: onnx_ir.Model, record: Record) -> tuple[Level, ...]:
    """Return the levels of a plan, the first one first.

    Args:
        model: The partitioned model of the plan.
        record: Record of the plan.
    """
    sites = {site.node: site for site in call_sites(model)}
    regions = {region.id: region for region in record.regions}
    titles = region_titles(record.regions, {site.name: site.function.name for site in sites.values()})
    whole_us = sum(region.time_us for region in record.regions)
    values = _described([*model.graph.inputs, *(value for node in model.graph for value in node.outputs)])
    boxes: list[Box] = []
    levels: list[Level] = []
    for number, node in enumerate(model.graph):
        site = sites.get(node)
        region = None if site is None else regions.get(site.name)
        if site is None or region is None:
            boxes.append(_operator(node, f"{ROOT}.{number}", name=node.name or ""))
            continue
        boxes.append(
            Box(
                key=site.name,
                kind="kernel",
                label=titles[region.id],
                detail=f"{region.id} · {figures.microseconds(region.time_us)} us",
                region=region.id,
                share=region.time_us / whole_us if whole_us else 0.0,
                reads=_names(site.data_inputs),
                writes=_names(site.outputs),
                opens=f"{site.name}/",
            )
        )
        levels += _inside(site, region, titles[region.id])
    ends = _ends(model.graph.inputs, model.graph.outputs, ROOT)
    return (*_grouped(ROOT, record.model.name, "", boxes, values, ends), *levels)


def _inside(site: CallSite, region: RegionFacts, title: str) -> list[Level]:
    """Return the levels of a kernel's operators."""
    function = site.function
    key = f"{site.name}/"
    arguments = dict(zip(function.inputs, site.node.inputs, strict=True))
    values = _described(value for node in function for value in node.outputs)
    given = [inner for inner, outer in arguments.items() if outer is not None and constant_of(outer) is None]
    for inner in given:
        outer = arguments[inner]
        assert outer is not None
        values[str(inner.name)] = _text(outer)
    for inner, outer in zip(function.outputs, site.node.outputs, strict=True):
        values[str(inner.name)] = _text(outer)
    names = _own_names(site)
    boxes = [
        _operator(node, f"{key}{number}", region.id, name)
        for number, (node, name) in enumerate(zip(function, names, strict=True))
    ]
    ends = _ends(given, function.outputs, key)
    return _grouped(key, title, ROOT, boxes, values, ends)


def _own_names(site: CallSite) -> list[str]:
    """Return the names that the nodes of a kernel have in the model.

    The function's own names are those of the first call. Nodes that core inserted to round to 8 bits have none.
    """
    inside = [node.name or "" for node in site.function]
    if len(site.nodes) == len(inside):
        return list(site.nodes)
    own = set(site.nodes)
    return [name if name in own else "" for name in inside]


def _operator(node: onnx_ir.Node, key: str, region: str = "", name: str = "") -> Box:
    return Box(
        key=key,
        kind="operator",
        label=node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}",
        detail=name,
        region=region,
        reads=_names((*node.inputs, *captured_values(node))),
        writes=_names(node.outputs),
    )


def _ends(inputs: Iterable[onnx_ir.Value], outputs: Iterable[onnx_ir.Value], key: str) -> list[Box]:
    """Return boxes for what goes into a level and comes out of it."""
    return [
        *(
            Box(key=f"{key}<{value.name}", kind="input", label=str(value.name), writes=(str(value.name),))
            for value in inputs
        ),
        *(
            Box(key=f"{key}>{value.name}", kind="output", label=str(value.name), reads=(str(value.name),))
            for value in outputs
        ),
    ]


def _grouped(
    key: str, title: str, above: str, boxes: Sequence[Box], values: Mapping[str, str], ends: Sequence[Box]
) -> list[Level]:
    """Return a level, cut into groups of neighbours if it has too many boxes, and the levels of the groups."""
    if len(boxes) <= MOST_BOXES:
        return [Level(key=key, title=title, above=above, boxes=(*boxes, *_used(ends, boxes)), values=values)]
    count = min(-(-len(boxes) // MOST_BOXES), MOST_BOXES)
    size = -(-len(boxes) // count)
    groups: list[Box] = []
    levels: list[Level] = []
    parts = [boxes[start : start + size] for start in range(0, len(boxes), size)]
    readers: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for box in part:
            for name in box.reads:
                readers.setdefault(name, set()).add(number)
    leaving = {name for end in ends if end.kind == "output" for name in end.reads}
    for number, part in enumerate(parts):
        written = {name for box in part for name in box.writes}
        reads = dict.fromkeys(name for box in part for name in box.reads if name not in written)
        writes = [
            name
            for box in part
            for name in box.writes
            if name in leaving or any(reader != number for reader in readers.get(name, ()))
        ]
        inner = f"{key}{number}."
        what = figures.counted(len(part), "kernel" if any(box.kind == "kernel" for box in part) else "operator")
        groups.append(
            Box(
                key=inner,
                kind="group",
                label=what,
                detail=f"{part[0].detail or part[0].label} to {part[-1].detail or part[-1].label}",
                region=part[0].region if len({box.region for box in part}) == 1 else "",
                share=sum(box.share for box in part),
                reads=tuple(reads),
                writes=tuple(writes),
                opens=inner,
            )
        )
        borders = [
            *(Box(key=f"{inner}<{name}", kind="input", label=name, writes=(name,)) for name in reads if name in values),
            *(Box(key=f"{inner}>{name}", kind="output", label=name, reads=(name,)) for name in writes),
        ]
        levels += _grouped(inner, f"{title}, part {number + 1} of {len(parts)}", key, part, values, borders)
    whole = Level(key=key, title=title, above=above, boxes=(*groups, *_used(ends, groups)), values=values)
    return [whole, *levels]


def _used(ends: Sequence[Box], boxes: Sequence[Box]) -> list[Box]:
    """Return the ends that a box of the level reads or writes; where there are many of a kind, the rest as one."""
    read = {name for box in boxes for name in box.reads}
    written = {name for box in boxes for name in box.writes}
    used = [end for end in ends if read.intersection(end.writes) or written.intersection(end.reads)]
    kept: list[Box] = []
    for kind in ("input", "output"):
        mine = [end for end in used if end.kind == kind]
        kept += mine[:_MOST_ENDS]
        if rest := mine[_MOST_ENDS:]:
            names = tuple(name for end in rest for name in (*end.reads, *end.writes))
            kept.append(
                Box(
                    key=f"{rest[0].key} and more",
                    kind=kind,
                    label=f"{figures.counted(len(rest), kind)} more",
                    reads=names if kind == "output" else (),
                    writes=names if kind == "input" else (),
                )
            )
    return kept


def _described(values: Iterable[onnx_ir.Value]) -> dict[str, str]:
    return {str(value.name): _text(value) for value in values}


def _text(value: onnx_ir.Value) -> str:
    """Return type and shape of a value."""
    kind = value.dtype.name.lower() if value.dtype is not None else ""
    shape = "" if value.shape is None else f"[{','.join(str(each) for each in value.shape)}]"
    return f"{kind}{shape}"


def _names(values: Iterable[onnx_ir.Value | None]) -> tuple[str, ...]:
    return tuple(str(value.name) for value in values if value is not None and constant_of(value) is None)
