"""Calibration samples: each way to give them, and one message for each way to give them wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.options import OptimizeOptions
from collage.setup.inputs.calibration import Calibration, calibration_samples
from collage_core.errors import FeedError, UsageError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder

Array = np.ndarray[Any, Any]


@pytest.fixture
def graph() -> DataflowGraph:
    g = GraphBuilder("two")
    return DataflowGraph(g.model(g.op("Add", g.input("x", 2, 3), g.input("y", 3))))


def sample(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(2, 3)).astype(np.float32), "y": rng.normal(size=3).astype(np.float32)}


def written(folder: Path, **files: dict[str, Array]) -> Path:
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # NumPy's stub has another keyword
    return folder


def stacked(*samples: dict[str, Array]) -> dict[str, Array]:
    return {name: np.stack([each[name] for each in samples]) for name in samples[0]}


GIVEN: dict[str, Callable[[Path], Calibration]] = {
    "in memory": lambda folder: [sample(1), sample(2)],
    "from a generator": lambda folder: (sample(seed) for seed in (1, 2)),
    "a file of several": lambda folder: written(folder, both=stacked(sample(1), sample(2))) / "both.npz",
    "a folder": lambda folder: written(folder, a=sample(1), b=sample(2)),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_samples_are_read_in_order(graph: DataflowGraph, tmp_path: Path, given: Callable[[Path], Calibration]) -> None:
    found = calibration_samples(graph, given(tmp_path))

    assert len(found) == 2
    for number, each in enumerate(found, start=1):
        assert each.keys() == {"x", "y"}
        for name, array in sample(number).items():
            np.testing.assert_array_equal(each[name], array)


def test_a_file_may_hold_one_sample(graph: DataflowGraph, tmp_path: Path) -> None:
    assert len(calibration_samples(graph, written(tmp_path, one=sample(1)) / "one.npz")) == 1


def with_nan() -> dict[str, Array]:
    found = sample(1)
    found["x"][1, 2] = np.nan
    return found


def without(name: str) -> dict[str, Array]:
    return {key: array for key, array in sample(1).items() if key != name}


WRONG: dict[str, tuple[Callable[[Path], Calibration], str]] = {
    "a name is missing": (lambda folder: [sample(1), without("y")], "'y': calibration, sample 1: no value is given"),
    "an unknown name": (lambda folder: [{**sample(1), "z": sample(1)["y"]}], "'z': .* the model has no such input"),
    "another shape": (lambda folder: [{**sample(1), "y": sample(1)["x"]}], r"'y': .* it has shape \(2, 3\)"),
    "another type": (
        lambda folder: [{**sample(1), "y": np.zeros(3)}],
        "'y': .* it is float64, the model needs float32",
    ),
    "NaN": (lambda folder: [sample(2), with_nan()], "'x': calibration, sample 1: 1 of 6 elements are NaN or infinite"),
    "NaN in a file": (
        lambda folder: written(folder, a=stacked(sample(1), with_nan())),
        r"a\.npz \(1\): 1 of 6 elements are NaN",
    ),
    "no sample": (lambda folder: [], "there is no sample"),
    "an empty folder": (lambda folder: folder, "no calibration samples: it has no NPZ file"),
    "no such file": (lambda folder: folder / "missing.npz", "missing.npz.*No such file"),
    "no NPZ file": (lambda folder: _text(folder / "a.npz"), "not an NPZ file"),
    "different numbers": (
        lambda folder: written(folder, a={**stacked(sample(1), sample(2)), "y": stacked(*map(sample, range(3)))["y"]}),
        "different numbers of calibration samples",
    ),
    "several and one": (
        lambda folder: written(folder, a={**stacked(sample(1), sample(2)), "y": sample(1)["y"]}),
        "different numbers of calibration samples",
    ),
}


def _text(path: Path) -> Path:
    path.write_text("no archive", encoding="utf-8")
    return path


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_each_mistake_is_one_message(
    graph: DataflowGraph, tmp_path: Path, given: Callable[[Path], Calibration], message: str
) -> None:
    with pytest.raises(FeedError, match=message):
        calibration_samples(graph, given(tmp_path))


def test_calibration_without_an_error_that_is_allowed_has_no_effect_and_is_refused() -> None:
    with pytest.raises(UsageError, match="--max-error"):
        OptimizeOptions(calibration=[sample(1)])
    OptimizeOptions(calibration=[sample(1)], max_error=0.01)
