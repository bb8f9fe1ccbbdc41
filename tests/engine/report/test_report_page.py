"""The page as a reader of HTML sees it, against the record."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from collage.report.facts.record import Record
from collage.report.page.page import ReportedPlan, report_page
from collage.report.page.sections import bars, commands, noise_lines, strip
from collage.report.picture.drawing import drawn
from collage.report.picture.outline import outlined
from collage.report.picture.titles import region_titles
from collage_core.passes.marking import NODES_METADATA
from tests.engine.report.records import COMPARISON, ESTIMATED, MODEL, RECORD
from tests.engine.report.test_history import SEARCHED
from tests.engine.report.test_outline import chain, partitioned

pytest.importorskip("jinja2")


class Reader(html.parser.HTMLParser):
    """Collects elements, text and what is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            while self._within.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._within and self._within[-1] == "script":
            self.scripts.append(data)
        elif not self._within or self._within[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def page_of(*records: Record) -> Reader:
    return read(report_page([ReportedPlan.of_record(record) for record in records], "segmenter.collage"))


def drawn_page(record: Record, model: Any) -> Reader:
    pictures = [drawn(level) for level in outlined(model, record)]
    plan = ReportedPlan(record=record, pictures=pictures, titles=region_titles(record.regions))
    return read(report_page([plan], "m.collage"))


def test_the_page_says_what_the_record_says() -> None:
    text = page_of(ESTIMATED).text

    for said in (
        RECORD.decision,
        "96.00 ms [95.04, 96.96]",
        "0.658 [0.651, 0.664]",
        "failed: output 'labels' is off by 4.1 % of its scale",
        "predicted 88.25 ms, measured 96.00 ms end to end",
        "k0001 openvino · argmax",
        "38,350",
        "collage optimize segmenter.onnx -o segmenter.collage",
        "Example CPU @ 2.5GHz, 2 cores",
        "tensorrt: no NVIDIA device",
        "backbone/node_3",
    ):
        assert said in text, said


def test_nothing_is_loaded_from_elsewhere() -> None:
    pytest.importorskip("pygraphviz")
    model, record = partitioned(chain(7), [3])
    for reader in (page_of(SEARCHED), drawn_page(record, model)):
        loading = [
            (tag, name, value)
            for tag, attributes in reader.tags
            for name, value in attributes.items()
            if name in ("src", "href", "data", "action", "srcset") and not (value or "").startswith(("#", "data:"))
        ]
        assert loading == []
        [policy] = [a["content"] for t, a in reader.tags if t == "meta" and a.get("http-equiv")]
        assert policy is not None
        assert policy.startswith("default-src 'none'")


HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<!--"


def test_names_in_a_model_are_text_and_nothing_else() -> None:
    pytest.importorskip("pygraphviz")
    model, record = partitioned(chain(7), [3])
    for call in model.graph:
        call.metadata_props[NODES_METADATA] = json.dumps(
            [HOSTILE] * len(json.loads(call.metadata_props[NODES_METADATA]))
        )
    regions = tuple(
        dataclasses.replace(region, nodes=(HOSTILE,) * len(region.nodes), operators=(HOSTILE,) * len(region.operators))
        for region in record.regions
    )
    record = dataclasses.replace(
        record,
        regions=regions,
        decision=HOSTILE,
        model=dataclasses.replace(MODEL, name=HOSTILE),
        notes=(HOSTILE,),
        unchecked={HOSTILE: HOSTILE},
    )

    reader = drawn_page(record, model)

    assert not [tag for tag, _ in reader.tags if tag == "img"]
    assert HOSTILE in reader.text
    assert len(reader.scripts) == 2
    [plan] = json.loads(reader.scripts[0])
    assert any(box.get("detail") == HOSTILE for level in plan["levels"].values() for box in level["boxes"])


def test_the_pictures_data_are_the_record_and_the_model() -> None:
    pytest.importorskip("pygraphviz")
    model, record = partitioned(chain(7), [3])

    [plan] = json.loads(drawn_page(record, model).scripts[0])

    assert set(plan["levels"]) == {"model", "k0000/", "k0001/"}
    assert set(plan["regions"]) == {region.id for region in record.regions}
    operators = [box["label"] for box in plan["levels"]["k0000/"]["boxes"] if box["kind"] == "operator"]
    assert operators == list(record.regions[0].operators)


def test_plans_for_several_shapes_are_on_one_page() -> None:
    shapes = [dataclasses.replace(RECORD, model=dataclasses.replace(MODEL, input_shapes={"x": (n, 3)})) for n in (1, 4)]

    reader = page_of(*shapes)

    assert [a["id"] for t, a in reader.tags if t == "article"] == ["plan-1", "plan-2"]
    assert "x:[1,3]" in reader.text
    assert "x:[4,3]" in reader.text


def test_a_record_without_its_model_says_where_the_picture_is() -> None:
    assert "A record does not hold the graph" in page_of(RECORD).text


def test_identifiers_are_unique() -> None:
    reader = page_of(RECORD, SEARCHED)

    found = [a["id"] for _, a in reader.tags if a.get("id")]
    assert len(found) == len(set(found))


def test_bars_are_as_long_as_latencies() -> None:
    made = {bar.name: bar for bar in bars(COMPARISON)}

    assert made["onnxruntime"].length == pytest.approx(100 / 1.01, abs=0.01)
    assert made["collage"].length / made["onnxruntime"].length == pytest.approx(96 / 160, abs=1e-4)
    assert made["collage"].low < made["collage"].length < made["collage"].high
    assert made["openvino(precision=bf16)"].failed


def test_noise_is_said_of_the_machine() -> None:
    first, second = noise_lines(RECORD)

    assert "±1.0 % wide over 200 runs" in first
    assert "(+10.0 %)" in first
    assert second == "The machine ran at 1.00 of its usual speed then: at that speed the plan takes 96.00 ms."


def test_the_strip_has_all_of_the_time_and_joins_what_is_thin() -> None:
    many = tuple(
        dataclasses.replace(RECORD.regions[2], id=f"k{n:04d}", cost_us=1.0, measured_us=None) for n in range(3, 40)
    )
    record = dataclasses.replace(RECORD, regions=(*RECORD.regions, *many))

    pieces = strip(record, region_titles(record.regions), dict.fromkeys(("onnxruntime", "openvino"), "c0"))

    assert sum(piece.share for piece in pieces) == pytest.approx(100, abs=0.01)
    assert [piece.title for piece in pieces][-1] == "38 kernels, k0002 to k0039"


def test_commands_can_be_pasted() -> None:
    odd = dataclasses.replace(
        RECORD, model=dataclasses.replace(MODEL, name="my model.onnx", input_shapes={"x": (1, 3)})
    )

    first, *others = commands(odd)

    assert "'my model.onnx' -o 'my model.collage'" in first
    assert "--input-shapes 'x:[1,3]'" in first
    assert re.search(r"--preset default --seed 0 --threads 2 --search exact$", first)
    assert others[0] == "collage explain 'my model.collage'"
