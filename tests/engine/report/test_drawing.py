"""Places of boxes, against what Graphviz itself writes as SVG, and against each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.report.picture.drawing import Picture, drawn
from collage.report.picture.outline import Box, Level

pytest.importorskip("pygraphviz")


def level(edges: list[tuple[int, int]], count: int, shares: list[float] | None = None) -> Level:
    boxes = tuple(
        Box(
            key=f"b{number}",
            kind="kernel" if shares else "operator",
            label=f"box {number}",
            share=shares[number] if shares else 0.0,
            reads=tuple(f"v{a}" for a, b in edges if b == number),
            writes=(f"v{number}",),
        )
        for number in range(count)
    )
    return Level(key="model", title="m", above="", boxes=boxes, values={f"v{n}": "float[1]" for n in range(count)})


def ends(path: str) -> tuple[tuple[float, float], tuple[float, float]]:
    places = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]
    return places[0], places[-1]


def check(picture: Picture) -> None:
    for number, one in enumerate(picture.boxes):
        assert one.x >= -0.2
        assert one.y >= -0.2
        assert one.x + one.width <= picture.width + 0.2
        assert one.y + one.height <= picture.height + 0.2
        for other in picture.boxes[number + 1 :]:
            apart = (
                one.x + one.width <= other.x + 0.2
                or other.x + other.width <= one.x + 0.2
                or one.y + one.height <= other.y + 0.2
                or other.y + other.height <= one.y + 0.2
            )
            assert apart, (one, other)
    for line in picture.lines:
        source, sink = picture.boxes[line.source], picture.boxes[line.sink]
        (x0, y0), (x1, y1) = ends(line.path)
        assert source.y + source.height <= sink.y, "lines go downwards"
        for box, x, y in ((source, x0, y0), (sink, x1, y1)):
            assert box.x - 2 <= x <= box.x + box.width + 2
            assert box.y - 2 <= y <= box.y + box.height + 2


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 14).flatmap(
        lambda n: st.tuples(
            st.just(n), st.sets(st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda e: e[0] < e[1]))
        )
    )
)
def test_boxes_do_not_overlap_and_lines_join_them(drawn_graph: tuple[int, set[tuple[int, int]]]) -> None:
    count, edges = drawn_graph

    picture = drawn(level(sorted(edges), count))

    check(picture)
    assert {(line.source, line.sink) for line in picture.lines} == edges


def test_width_says_the_share_of_the_time() -> None:
    picture = drawn(level([(0, 1), (1, 2)], 3, [0.7, 0.2, 0.1]))

    widths = [each.width for each in picture.boxes]
    assert widths[0] - widths[2] == pytest.approx(6 * (widths[1] - widths[2]), abs=0.5)


def test_a_line_says_what_goes_along_it() -> None:
    picture = drawn(level([(0, 1)], 2))

    [line] = picture.lines
    assert line.values == "v0 float[1]"


def test_a_level_without_lines_is_drawn() -> None:
    check(drawn(level([], 3)))
