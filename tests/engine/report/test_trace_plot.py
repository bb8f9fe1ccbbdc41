from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from collage.report.text.trace_plot import trace_svg, write_trace

SVG = "{http://www.w3.org/2000/svg}"


def evaluation(number: int, move: str, ratio: float | None, best: float | None) -> dict[str, Any]:
    return {"number": number, "move": move, "parent": None, "ratio": ratio, "best": best, "kernels": [{}]}


TRACE = {
    "schema_version": 1,
    "ratio": 0.9,
    "evaluations": [
        evaluation(0, "start", 1.0, 1.0),
        evaluation(1, "give", None, 1.0),
        evaluation(2, "merge", 1.2, 1.0),
        evaluation(3, "split", 0.9, 0.9),
    ],
}


def heights(svg: str) -> dict[str, float]:
    """Height of each point, by what is said of it."""
    root = ElementTree.fromstring(svg)
    return {
        title.text.split(":")[0]: float(point.attrib["cy"])
        for point in root.iter(f"{SVG}circle")
        if (title := point.find(f"{SVG}title")) is not None and title.text
    }


def test_each_plan_is_a_point_and_slower_ones_are_higher() -> None:
    found = heights(trace_svg(TRACE, "a <model>"))

    assert set(found) == {"0", "2", "3"}
    assert found["2"] < found["0"] < found["3"]  # downwards on the page


def test_what_could_not_be_run_is_a_cross() -> None:
    root = ElementTree.fromstring(trace_svg(TRACE))

    crosses = [text for text in root.iter(f"{SVG}text") if text.text == "x"]

    assert [cross.find(f"{SVG}title").text for cross in crosses] == ["1: give, 1 kernels"]  # type: ignore[union-attr]


def test_a_trace_of_nothing_is_a_picture_of_nothing() -> None:
    assert heights(trace_svg({})) == {}


def test_the_trace_and_its_picture_are_written_side_by_side(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json", TRACE, "model")

    assert json.loads((tmp_path / "trace.json").read_text()) == TRACE
    assert len(heights((tmp_path / "trace.svg").read_text())) == 3
