from __future__ import annotations

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


def varying(folder: Path, *sizes: SizeRange) -> Workload:
    """The model with a free first dimension for each range, all else being fixed."""
    g = GraphBuilder("free")
    names = [f"n{number}" for number in range(len(sizes))]
    sums = [g.op("ReduceSum", g.input(f"x_{name}", name, 4), keepdims=0) for name in names]
    save_model(g.model(g.op("Sum", *sums)), folder / "varying.onnx")
    shapes = {f"x_{name}": (size, 4) for name, size in zip(names, sizes, strict=True)}
    return Workload(folder / "varying.onnx", input_shapes=shapes)


def test_runs_of_a_race_have_sizes_near_the_typical_ones_which_differ_by_the_same_number(tmp_path: Path) -> None:
    workload = varying(tmp_path, SizeRange(0, 500, 40), SizeRange(1, 501, 41), SizeRange(1, 64, 4))

    sizes = workload.sizes_in_turn

    assert sizes[0] == workload.graph.typical_sizes == {"n0": 40, "n1": 41, "n2": 4}
    assert sorted(each["n0"] for each in sizes) == [37, 38, 39, 40, 41, 42, 43]
    assert all(each["n1"] == each["n0"] + 1 for each in sizes)
    assert {each["n2"] for each in sizes} == {4}, "none is within an eighth of it"
    documents = workload.documents_in_turn(tmp_path, BlobStore(tmp_path))
    given = [read_values(document) for document in documents]
    assert [(each["x_n0"].shape, each["x_n1"].shape) for each in given] == [
        ((each["n0"], 4), (each["n1"], 4)) for each in sizes
    ]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (SizeRange(1, 90, 90), [80, 82, 84, 86, 88, 90]),
        (SizeRange(320, 640, 480), [448, 480, 512]),
        (SizeRange(0, 127, 40), [36, 40, 44]),
        (SizeRange(1, 81, 81), [75, 76, 77, 78, 79, 80, 81]),
        (SizeRange(8, 90, 8), []),
        (SizeRange(7, 9, 8), [7, 8, 9]),
        (SizeRange(480, 640, 480), [480, 496, 512, 528]),
        (SizeRange(0, 1023, 0), []),
        (SizeRange(50, 50, 50), []),
        (SizeRange(1, 1 << 22, 1 << 21), [7 << 18, 8 << 18, 9 << 18]),
        (SizeRange(1, 1 << 25, 1 << 24), []),
    ],
)
def test_there_are_sizes_in_turn_only_where_several_are_near_and_small_enough(
    size: SizeRange, wanted: list[int], tmp_path: Path
) -> None:
    assert sorted(each["n0"] for each in varying(tmp_path, size).sizes_in_turn) == wanted


def test_runs_of_a_race_have_the_given_inputs_where_there_are_any(tmp_path: Path) -> None:
    given = arrays(tmp_path, x=np.ones((40, 4), np.float32), y=np.ones((40, 4), np.float32))
    shape = SizeRange(1, 60, 40), 4

    workload = Workload(free_model(tmp_path), input_shapes={"x": shape, "y": shape}, inputs=given)

    assert workload.sizes_in_turn == ()
    assert len(workload.documents_in_turn(tmp_path, BlobStore(tmp_path))) == 1
