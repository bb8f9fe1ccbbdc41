"""Place the boxes of a level, and the lines between them, with Graphviz.

Graphviz's `dot` has drawn layered graphs for three decades (E. Gansner, E. Koutsofios, S. North and K.-P. Vo, "A
Technique for Drawing Directed Graphs", 1993), takes sizes of boxes into account, and routes lines around them. It comes
with `pygraphviz`, whose wheels hold it, so nothing has to be installed beside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from collage.report.picture.outline import Box, Level

_POINTS = 72.0
"""Graphviz's points per inch: it takes sizes in inches and says places in points."""
_CHARACTER = 7.0
_PADDING = 24.0
_HEIGHT, _LOW = 44.0, 26.0
_LEAST_WIDTH, _MOST_WIDTH = 72.0, 260.0
_WIDTH_OF_ALL = 420.0
"""What is added to the width of a kernel that takes all of the time."""
_ROUTED = 400
"""Lines beyond which they are drawn straight: routing takes longer than placing then."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBox:
    """A box and its place.

    Attributes:
        box: What is drawn.
        x: Left edge, in pixels from the picture's left.
        y: Upper edge, in pixels from the picture's top.
        width: Width in pixels.
        height: Height in pixels.
    """

    box: Box
    x: float
    y: float
    width: float
    height: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLine:
    """A line from the box that computes values to one that reads them.

    Attributes:
        source: Index of the first box.
        sink: Index of the second.
        path: As the `d` of an SVG path.
        values: Names, types and shapes of the values, as text.
    """

    source: int
    sink: int
    path: str
    values: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A level with the places of its boxes.

    Attributes:
        level: What is drawn.
        width: Width in pixels.
        height: Height in pixels.
        boxes: The boxes, in the level's order.
        lines: The lines.
    """

    level: Level
    width: float
    height: float
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]


def drawn(level: Level) -> Picture:
    """Place the boxes of a level."""
    import pygraphviz

    graph = pygraphviz.AGraph(directed=True, strict=True)
    graph.node_attr.update(shape="box", fixedsize="true", label="")
    between = _between(level)
    graph.graph_attr.update(
        rankdir="TB", nodesep="0.25", ranksep="0.35", splines="spline" if len(between) <= _ROUTED else "line"
    )
    sizes = _sizes(level.boxes)
    for number, (width, height) in enumerate(sizes):
        graph.add_node(number, width=f"{width / _POINTS:.4f}", height=f"{height / _POINTS:.4f}")
    for source, sink in between:
        graph.add_edge(source, sink)
    graph.layout(prog="dot")
    # the box around everything: left, bottom, right, top, with y upwards
    left, bottom, right, top = (float(each) for each in str(graph.graph_attr["bb"]).split(","))
    boxes = []
    for number, (box, (width, height)) in enumerate(zip(level.boxes, sizes, strict=True)):
        x, y = (float(each) for each in graph.get_node(number).attr["pos"].split(","))
        boxes.append(
            DrawnBox(
                box=box,
                x=round(x - left - width / 2, 1),
                y=round(top - y - height / 2, 1),
                width=round(width, 1),
                height=round(height, 1),
            )
        )
    lines = tuple(
        DrawnLine(
            source=source,
            sink=sink,
            path=_path(graph.get_edge(source, sink).attr["pos"], left, top),
            values="\n".join(f"{name} {level.values.get(name, '')}".rstrip() for name in names),
        )
        for (source, sink), names in between.items()
    )
    graph.close()
    return Picture(
        level=level, width=round(right - left, 1), height=round(top - bottom, 1), boxes=tuple(boxes), lines=lines
    )


def _sizes(boxes: Sequence[Box]) -> list[tuple[float, float]]:
    """Return the width and height of each box; those of kernels differ by their share of the time only."""
    wide = [_width_of(box) for box in boxes]
    base = max((width for box, width in zip(boxes, wide, strict=True) if _is_timed(box)), default=0.0)
    return [
        (base + _WIDTH_OF_ALL * box.share if _is_timed(box) else width, _HEIGHT if box.detail else _LOW)
        for box, width in zip(boxes, wide, strict=True)
    ]


def _is_timed(box: Box) -> bool:
    return box.share > 0


def _width_of(box: Box) -> float:
    longest = max(len(box.label), len(box.detail))
    return min(_MOST_WIDTH, max(_LEAST_WIDTH, longest * _CHARACTER + _PADDING))


def _between(level: Level) -> Mapping[tuple[int, int], list[str]]:
    """Return the names of the values that go from one box to another, by the boxes' indices."""
    source = {name: number for number, box in enumerate(level.boxes) for name in box.writes}
    found: dict[tuple[int, int], list[str]] = {}
    for number, box in enumerate(level.boxes):
        for name in box.reads:
            if name in source and source[name] != number:
                found.setdefault((source[name], number), []).append(name)
    return found


def _path(spline: Any, left: float, top: float) -> str:
    """Return a spline of Graphviz as an SVG path, its arrow's tip included.

    Graphviz writes `e,x,y` for the tip, then the start and three points for each cubic curve.
    """
    tip = None
    points = []
    for part in str(spline or "").replace("\\\n", "").split():
        kind, _, rest = part.partition(",")
        if kind == "e":
            tip = rest
        elif kind != "s":
            points.append(part)
    places = [_place(point, left, top) for point in points]
    if not places:
        return ""
    curves = [" ".join(places[at : at + 3]) for at in range(1, len(places), 3)]
    end = f" L{_place(tip, left, top)}" if tip else ""
    return f"M{places[0]}" + "".join(f" C{curve}" for curve in curves) + end


def _place(point: str, left: float, top: float) -> str:
    x, y = (float(each) for each in point.split(","))
    return f"{x - left:.1f},{top - y:.1f}"
