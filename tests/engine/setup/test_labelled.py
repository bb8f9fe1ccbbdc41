"""Labelled samples: the model's inputs, and whatever the metric needs besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.setup.inputs import Calibration, labelled_samples
from collage.setup.workload import Workload
from collage_core.errors import FeedError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder

Array = np.ndarray[Any, Any]


@pytest.fixture
def graph() -> DataflowGraph:
    g = GraphBuilder("one")
    return DataflowGraph(g.model(g.op("Relu", g.input("x", 2, 3))))


def sample(number: int) -> dict[str, Array]:
    return {"x": np.full((2, 3), number, np.float32), "label": np.array([number, -number]), "name": np.array("a")}


def test_every_second_sample_is_held_out(graph: DataflowGraph) -> None:
    found = labelled_samples(graph, [sample(number) for number in range(5)])

    assert [int(each.given["label"][0]) for each in found.deciding] == [0, 2, 4]
    assert [int(each.given["label"][0]) for each in found.held_out] == [1, 3]
    assert found.are_apart
    for each in (*found.deciding, *found.held_out):
        assert each.inputs.keys() == {"x"}
        assert each.given.keys() == {"x", "label", "name"}


def test_one_sample_serves_for_both(graph: DataflowGraph) -> None:
    found = labelled_samples(graph, [sample(1)])

    assert found.deciding == found.held_out
    assert not found.are_apart


def test_a_file_of_several_is_taken_apart_with_its_labels(graph: DataflowGraph, tmp_path: Path) -> None:
    both = [{name: array for name, array in sample(number).items() if name != "name"} for number in (1, 2)]
    np.savez(tmp_path / "all.npz", **{name: np.stack([each[name] for each in both]) for name in both[0]})  # type: ignore[arg-type]

    found = labelled_samples(graph, tmp_path / "all.npz")

    [first], [second] = found.deciding, found.held_out
    np.testing.assert_array_equal(first.given["label"], [1, -1])
    np.testing.assert_array_equal(second.given["label"], [2, -2])
    np.testing.assert_array_equal(second.inputs["x"], both[1]["x"])


def test_labels_for_another_number_of_samples_are_refused(graph: DataflowGraph, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.zeros((3, 2, 3), np.float32), label=np.zeros(2))

    with pytest.raises(FeedError, match="different numbers of labelled samples"):
        labelled_samples(graph, tmp_path / "all.npz")


def test_arrays_are_read_only_and_the_callers_own_stay_writeable(graph: DataflowGraph) -> None:
    own = sample(1)
    [found] = labelled_samples(graph, [{**own, "count": 3}]).deciding

    for array in found.given.values():
        assert not array.flags.writeable
    assert own["x"].flags.writeable
    assert found.given["count"] == 3


def test_what_is_no_array_is_refused_at_once(graph: DataflowGraph) -> None:
    with pytest.raises(FeedError, match="'label': labelled, sample 0"):
        labelled_samples(graph, [sample(0) | {"label": np.array([{"a": 1}], object)}])


def test_messages_speak_of_labelled_samples(graph: DataflowGraph, tmp_path: Path) -> None:
    given: tuple[Calibration, ...] = ([], tmp_path)
    for each in given:
        with pytest.raises(FeedError, match="labelled"):
            labelled_samples(graph, each)


def test_a_missing_input_is_named(graph: DataflowGraph) -> None:
    with pytest.raises(FeedError, match="labelled, sample 1: no value is given"):
        labelled_samples(graph, [sample(0), {"label": np.zeros(2)}])


def test_ranges_are_those_of_labelled_samples_that_decide_unless_others_are_given(graph: DataflowGraph) -> None:
    labelled = [sample(number) for number in range(6)]

    alone = Workload(graph.model, labelled=labelled)
    beside = Workload(graph.model, labelled=labelled, calibration=[{"x": np.full((2, 3), 9, np.float32)}])

    assert [float(each["x"][0, 0]) for each in alone.calibration] == [0, 2]  # the last is held out
    assert float(alone.fresh_inputs()["x"][0, 0]) == 4
    assert alone.is_calibrated
    assert [float(each["x"][0, 0]) for each in beside.calibration] == [9]
