from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.value_files import read_values
from collage.setup.workload import Workload
from collage_core.errors import FeedError, InputShapeError
from collage_core.ir.io.model_io import save_model
from collage_core.ir.values.size_range import SizeRange
from collage_testing.graphs import GraphBuilder


def free_model(folder: Path) -> Path:
    """The sum of two inputs whose first dimension is free."""
    g = GraphBuilder("free")
    save_model(g.model(g.op("Add", g.input("x", "batch", 4), g.input("y", "batch", 4))), folder / "free.onnx")
    return folder / "free.onnx"


def arrays(folder: Path, **given: Any) -> Path:
    np.savez(folder / "in.npz", **given)
    return folder / "in.npz"


def test_free_dimensions_take_the_shapes_of_the_given_inputs(tmp_path: Path) -> None:
    given = arrays(tmp_path, x=np.ones((3, 4), np.float32), y=np.ones((3, 4), np.float32))

    workload = Workload(free_model(tmp_path), inputs=given)

    assert [workload.graph.spec(value).shape for value in workload.graph.model.graph.inputs] == [(3, 4), (3, 4)]
    assert workload.inputs["x"].sum() == 12
    assert not workload.has_fresh_inputs


def test_a_shape_that_is_named_wins_over_that_of_the_given_input_which_then_does_not_fit(tmp_path: Path) -> None:
    given = arrays(tmp_path, x=np.ones((3, 4), np.float32), y=np.ones((3, 4), np.float32))

    with pytest.raises(FeedError, match=r"has shape \(3, 4\), the model needs float32 of shape \(2, 4\)"):
        Workload(free_model(tmp_path), input_shapes={"x": (2, 4), "y": (2, 4)}, inputs=given)


def test_inputs_that_disagree_about_a_free_dimension_are_refused(tmp_path: Path) -> None:
    given = arrays(tmp_path, x=np.ones((3, 4), np.float32), y=np.ones((2, 4), np.float32))

    with pytest.raises(InputShapeError, match="makes batch"):
        Workload(free_model(tmp_path), inputs=given)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short"], ids=["empty", "cut short"])
def test_a_file_that_is_no_npz_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(content)

    with pytest.raises(FeedError, match="not an NPZ file"):
        Workload(free_model(tmp_path), inputs=tmp_path / "in.npz")


def test_other_weights_in_a_file_beside_the_model_are_another_model(tmp_path: Path) -> None:
    g = GraphBuilder("heavy")
    model = g.model(g.op("MatMul", g.input("x", 1, 64), g.weight("w", 64, 64)))
    save_model(model, tmp_path / "in.onnx")
    onnx.save_model(onnx.load(tmp_path / "in.onnx"), tmp_path / "m.onnx", save_as_external_data=True, location="w.data")
    before = Workload(tmp_path / "m.onnx").key
    weights = np.fromfile(tmp_path / "w.data", np.float32)
    (2 * weights).tofile(tmp_path / "w.data")

    assert Workload(tmp_path / "m.onnx").key != before
    weights.tofile(tmp_path / "w.data")
    assert Workload(tmp_path / "m.onnx").key == before


def test_runs_of_a_race_have_sizes_near_the_typical_ones(tmp_path: Path) -> None:
    g = GraphBuilder("free")
    x, y = g.input("x", "batch", "length"), g.input("y", "batch", "length")
    save_model(g.model(g.op("Add", x, y)), tmp_path / "free.onnx")
    shape = SizeRange(1, 3, 2), SizeRange(0, 500, 40)

    workload = Workload(tmp_path / "free.onnx", input_shapes={"x": shape, "y": shape})
    sizes = workload.sizes_in_turn

    assert sizes[0] == workload.graph.typical_sizes == {"batch": 2, "length": 40}
    assert sorted(each["length"] for each in sizes) == list(range(36, 44))
    assert {each["batch"] for each in sizes} == {1, 2, 3}
    assert all(one["length"] != other["length"] for one, other in itertools.pairwise(sizes))
    documents = workload.documents_in_turn(tmp_path, BlobStore(tmp_path))
    given = [read_values(document)["x"].shape for document in documents]
    assert given == [(each["batch"], each["length"]) for each in sizes]


def test_runs_of_a_race_have_few_sizes_where_inputs_are_large(tmp_path: Path) -> None:
    workload = Workload(free_model(tmp_path), input_shapes={"x": (SizeRange(1, 1 << 22, 1 << 21), 4)})

    assert len(workload.sizes_in_turn) == 4


def test_runs_of_a_race_have_the_given_inputs_where_there_are_any(tmp_path: Path) -> None:
    given = arrays(tmp_path, x=np.ones((2, 4), np.float32), y=np.ones((2, 4), np.float32))
    shape = SizeRange(1, 3, 2), 4

    workload = Workload(free_model(tmp_path), input_shapes={"x": shape, "y": shape}, inputs=given)

    assert workload.sizes_in_turn == ()
    assert len(workload.documents_in_turn(tmp_path, BlobStore(tmp_path))) == 1
