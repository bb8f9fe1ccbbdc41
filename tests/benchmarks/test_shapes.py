"""What is expected over several input shapes, its limits and its page."""

from __future__ import annotations

import copy
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import shapes
from benchmarks.models.varying import VARYING
from benchmarks.sessions import OWN
from benchmarks.shapes import CASES, DYNAMIC, exceeded, expected, likely_lengths, markdown
from collage.cli.options.parameters import input_shape, shape_sets
from collage_core.ir.values.size_range import shape_within

ENVIRONMENT = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}


def result(own: float = 0.9, measured: int = 0, error: float = 1e-6) -> dict[str, Any]:
    """Two sizes; the second takes ten times as long, and OpenVINO is best there."""
    times = {
        OWN: [[own * 100.0] * 5, [own * 1000.0] * 5],
        "onnxruntime": [[100.0] * 5, [1100.0] * 5],
        "openvino": [[150.0] * 5, [1000.0] * 5],
    }
    size: dict[str, Any] = {"measured": 7, "known": 3, "seconds": 9.0, "plan": [["openvino", 12]]}
    size["shapes"] = {"x": [1, 3]}
    done: dict[str, Any] = {"seconds": 20.0, "plans": [size, {**size, "shapes": {"x": ["2..16", 3]}}]}
    again = copy.deepcopy(done)
    for each in again["plans"]:
        each["measured"] = measured
    return {
        "sizes": [1, 10],
        "cold": done,
        "anew": again,
        "times_us": {"bound": times, "called": times, "changing": times},
        "errors": [error, error],
        "error": 1e-6,
        "compared": 16,
        "package_bytes": 2_000_000,
        "model_bytes": 1_500_000,
    }


def report(**changed: Any) -> dict[str, Any]:
    return {"environment": ENVIRONMENT, "cases": {"cnn": result(**changed)}}


def test_the_base_is_the_toolchain_that_takes_least_over_all_sizes() -> None:
    base, ratio = expected(result()["times_us"]["bound"])

    assert base == "openvino"
    assert ratio.value == pytest.approx(0.9 * 1100 / 1150)


@pytest.mark.parametrize(
    ("changed", "count"),
    [({}, 0), ({"own": 1.2}, 1), ({"measured": 1}, 1), ({"error": 0.01}, 2), ({"error": float("nan")}, 2)],
)
def test_what_is_not_as_it_has_to_be_is_named(changed: dict[str, Any], count: int) -> None:
    assert len(exceeded(report(**changed))) == count


def test_the_page_has_a_row_for_each_size_and_what_is_expected() -> None:
    page = markdown(report())

    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| cnn")]
    assert [row[1] for row in rows] == ["1", "10", "expected", "x [1, 3]", "x [2..16, 3]"]
    assert rows[2][-1].startswith("1.0e-06 of 16 sizes")
    assert rows[4][2:5] == ["7 + 3", "9", "openvino: 12 |"]
    assert rows[0][2:6] == ["0.090", "0.100", "0.150", "0.900 [0.900, 0.900]"]
    assert rows[2][5].endswith("of openvino")
    assert "the package has 2.0 MB, the model 1.5 MB" in page
    assert "0 candidates are measured" in page


@pytest.mark.parametrize("name", CASES)
def test_the_package_is_for_every_size_that_runs(name: str) -> None:
    case, random = CASES[name], np.random.default_rng(0)

    given = shape_sets(tuple(input_shape(text) for text in case.options[1::2] if ":" in text))

    assert set(case.sizes) <= set(case.every)
    for size in case.every:
        feeds = case.inputs(size, random)
        assert any(all(shape_within(feeds[key].shape, shape) for key, shape in each.items()) for each in given)
    assert set(DYNAMIC) == {"onnxruntime", "openvino"}


def test_lengths_are_the_middles_of_equally_likely_parts() -> None:
    lengths = likely_lengths(1000, 64, 0.8, 512)

    assert statistics.median(lengths) == pytest.approx(64, abs=1)
    assert statistics.stdev(map(math.log, lengths)) == pytest.approx(0.8, abs=0.02)
    assert max(lengths) == 512


@pytest.mark.parametrize("name", ["fcos_detector"])
def test_a_model_whose_sizes_vary_runs_at_several(name: str) -> None:
    model = VARYING[name].build()
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    for size in (64, 96):
        image = np.random.default_rng(size).standard_normal((1, 3, size, size), np.float32)
        boxes, scores, classes = session.run(None, {"image": image})
        assert boxes.shape == (len(scores), 4)
        assert len(scores) == len(classes) > 0


def test_the_segmenter_answers_for_each_image_of_a_batch() -> None:
    model = VARYING["segmenter_any_batch"].build()
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(0).standard_normal((2, 3, 256, 256), np.float32)

    [both], [first] = session.run(None, {"image": images}), session.run(None, {"image": images[:1]})

    assert (both.shape, both.dtype) == ((2, 256, 256), np.int64)
    assert len(np.unique(both)) > 1
    assert float(np.mean(both[:1] != first)) < 1e-4


def test_a_difference_of_shape_or_type_is_infinite() -> None:
    right = np.array([1, 2])

    assert shapes.difference(right[:1], right) == shapes.difference(right.astype(np.int32), right) == math.inf
    assert shapes.difference(np.array([math.nan, 1.0]), np.array([1.0, 1.0])) == math.inf


def test_times_of_changing_sizes_are_by_contender_size_round_and_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def turns(module: str, folder: Path, names: list[str], parts: int, *arguments: str) -> dict[str, list[list[float]]]:
        asked.append((module, *names, *arguments))
        return {name: [[1.0 * len(asked), 100.0 + place], [5.0, 7.0]] for place, name in enumerate(names)}

    monkeypatch.setattr(shapes, "in_turns", turns)

    times = shapes.changing("cnn", Path(), rounds=2)

    assert times[OWN] == [[[1, 5], [2, 5]], [[100, 7], [100, 7]]]
    assert times["openvino"] == [[[1, 5], [2, 5]], [[102, 7], [102, 7]]]
    assert asked == [("benchmarks.shapes", OWN, "onnxruntime", "openvino", "cnn")] * 2


def test_a_turn_is_compared_with_the_same_turn_of_the_other() -> None:
    slower = np.array([[1.0, 4.0, 2.0], [3.0, 1.0, 5.0]])  # the machine, by round and turn

    ratio = shapes.ratio_of(0.5 * slower, slower)

    assert (ratio.value, ratio.low, ratio.high) == (0.5, 0.5, 0.5)
    assert expected({OWN: [0.5 * slower] * 2, "a": [slower] * 2})[1].high == 0.5
