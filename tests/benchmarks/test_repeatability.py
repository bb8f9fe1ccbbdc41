"""Optimizing again and again: what counts as the same plan, and what the page says of several."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks import repeatability
from benchmarks.judge.rounds import Protocol
from benchmarks.records import plan_of
from benchmarks.repeatability import by_plan, lost, markdown, plan_key, raced_once

CONV, RELU = {"target": "a", "nodes": ["conv", "add"]}, {"target": "b", "nodes": ["relu"]}


def a_run(plan: str, *, load: bool = False) -> dict[str, Any]:
    return {"plan": plan, "kernels": [f"{plan} 2", "b 1"], "seconds": 60.0, "load": load}


def report_of(*models: dict[str, Any]) -> dict[str, Any]:
    host = {"cpu": "some", "cores": 2, "system": "Linux"}
    where = {"host": host, "date": "2026-01-01T00:00:00", "versions": {"python": "3.11"}}
    return {"environment": where, "protocol": {"rounds": 9}, "models": list(models)}


def test_a_plan_is_its_kernels_on_their_targets() -> None:
    assert plan_key([CONV, RELU]) == plan_key([RELU, {"target": "a", "nodes": ["add", "conv"]}])
    assert len({plan_key([CONV, RELU]), plan_key([{**CONV, "target": "b"}, RELU]), plan_key([CONV])}) == 3


def test_a_plan_is_read_from_its_package(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.collage", "w") as archive:
        archive.writestr("record.json", json.dumps({"regions": [{"id": "k0", **CONV}, {"id": "k1", **RELU}]}))

    assert plan_of(tmp_path / "m.collage") == [CONV, RELU]


def test_the_plan_found_most_often_is_what_others_are_compared_with() -> None:
    runs = [a_run("x"), a_run("y", load=True), a_run("y"), a_run("z")]

    assert {key: len(each) for key, each in by_plan(runs).items()} == {"y": 2, "x": 1, "z": 1}
    assert next(iter(by_plan(runs))) == "y"


def test_one_plan_holds_and_a_slower_or_unknown_one_does_not() -> None:
    one = {"model": "one", "runs": [a_run("x")] * 3, "ratios": {}}
    several = {"model": "m", "runs": [a_run(key) for key in "xxyzw"]}
    ratios = {"y": [1.0, 0.99, 1.01], "z": [1.05, 1.03, 1.07], "w": [1.0, 0.9, 1.1]}

    assert lost([one]) == []
    assert lost([{**several, "ratios": ratios}]) == ["m, plan z: differs", "m, plan w: not measured"]


def test_the_page_has_a_row_for_each_plan() -> None:
    runs = [a_run("x"), a_run("x", load=True), a_run("y", load=True)]

    page = markdown(report_of({"model": "m", "runs": runs, "ratios": {"y": [1.01, 0.99, 1.03]}}))

    assert "| m | x | 2 | 1 | x 2, b 1 |  |  | most often |" in page
    assert "| m | y | 1 | 1 | y 2, b 1 | 1.010 | 0.990 - 1.030 | as fast |" in page
    assert "All plans of a model are as fast." in page


def test_a_race_is_run_once_for_the_same_plans_and_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []

    def raced(model: Path, keys: list[str], protocol: Protocol) -> dict[str, list[float]]:
        made.append((*keys, str(protocol.rounds)))
        return {key: [1.0, 0.99, 1.01] for key in keys[1:]}

    monkeypatch.setattr(repeatability, "raced", raced)
    model, few, many = tmp_path / "m.onnx", Protocol(threads=2, rounds=9), Protocol(threads=2, rounds=12)

    assert raced_once(model, ["x"], few) == {}
    assert raced_once(model, ["x", "y"], few) == raced_once(model, ["x", "y"], few) == {"y": [1.0, 0.99, 1.01]}
    assert raced_once(model, ["x", "y"], many) == {"y": [1.0, 0.99, 1.01]}
    assert set(raced_once(model, ["x", "y", "z"], many)) == {"y", "z"}
    assert made == [("x", "y", "9"), ("x", "y", "12"), ("x", "y", "z", "12")]
