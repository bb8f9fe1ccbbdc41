from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import psutil
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from collage.setup.inputs.random_arrays import checked_inputs, load_inputs, random_inputs
from collage_core.errors import FeedError
from collage_core.ir.graph.dataflow import DataflowGraph


def _graph(text: str) -> DataflowGraph:
    model = onnx_ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    return DataflowGraph(ShapeInferencePass()(model).model)


def test_indices_stay_within_every_axis_they_select_from() -> None:
    graph = _graph(
        """g (int64[2, 64] ids, float[30, 4] table, float[4, 9] other) => (float[2, 64, 4] y, float[4, 128] z) {
            y = Gather(table, ids)
            small = Cast <to = 6> (ids)
            shape = Constant <value_ints = [-1]> ()
            flat = Reshape(small, shape)
            z = Gather <axis = 1> (other, flat)
        }"""
    )

    ids = random_inputs(graph, seed=0)["ids"]

    assert ids.dtype == np.int64
    assert 0 <= ids.min() < ids.max() < 9


def test_wide_integers_that_select_nothing_are_masks() -> None:
    graph = _graph(
        "g (int64[2, 50] mask, float[2, 50] x) => (float[2, 50] y) { m = Cast <to = 1> (mask) y = Mul(x, m) }"
    )

    mask = random_inputs(graph, seed=0)["mask"]

    assert set(mask.ravel().tolist()) == {0, 1}
    assert mask[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["bool", "uint8", "int32", "int64", "float", "bfloat16", "complex64", "string"])
def test_a_scalar_is_made_up_too(kind: str) -> None:
    graph = _graph(f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}")

    value = random_inputs(graph, seed=0)["x"]

    assert isinstance(value, np.ndarray)
    assert value.shape == ()
    assert value.dtype == (object if kind == "string" else graph.spec(graph.model.graph.inputs[0]).numpy_dtype)


def test_strings_are_words() -> None:
    graph = _graph("g (string[3, 2] words) => (string[3, 2] y) { y = Identity(words) }")

    words = random_inputs(graph, seed=0)["words"]

    assert (words.shape, words.dtype) == ((3, 2), np.dtype(object))
    assert {type(word) for word in words.ravel()} == {str}


def test_bytes_cover_their_range_and_floats_are_normal() -> None:
    graph = _graph(
        """g (uint8[4000] pixels, float16[4000] x, bool[100] b) => (uint8[4000] p, float16[4000] y, bool[100] c) {
            p = Identity(pixels) y = Identity(x) c = Not(b) }"""
    )

    values = random_inputs(graph, seed=0)

    assert (values["pixels"].min(), values["pixels"].max()) == (0, 255)
    assert values["x"].dtype == np.float16
    assert abs(float(values["x"].std()) - 1) < 0.1
    assert 0 < values["b"].mean() < 1


def test_a_seed_decides_the_values() -> None:
    graph = _graph("g (float[8] x, float[8] z) => (float[8] y) { y = Add(x, z) }")
    first, same, other = (random_inputs(graph, seed) for seed in (1, 1, 2))

    np.testing.assert_array_equal(first["x"], same["x"])
    assert not np.array_equal(first["x"], other["x"])
    assert not np.array_equal(first["x"], first["z"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "no value is given"),
        ({"x": np.zeros(8, np.float64)}, "float64, the model needs float32"),
        ({"x": np.zeros(7, np.float32)}, r"shape \(7,\), the model needs float32 of shape \(8,\)"),
        ({"x": np.zeros(8, np.float32), "q": 1}, "no such input"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: dict[str, object], reason: str) -> None:
    graph = _graph("g (float[8] x) => (float[8] y) { y = Relu(x) }")

    with pytest.raises(FeedError, match=reason):
        checked_inputs(graph, values)


def test_values_come_from_a_file(tmp_path: Path) -> None:
    graph = _graph("g (float[8] x) => (float[8] y) { y = Relu(x) }")
    np.savez(tmp_path / "good.npz", x=np.ones(8, np.float32))
    (tmp_path / "bad.npz").write_bytes(b"nothing")

    assert load_inputs(graph, tmp_path / "good.npz")["x"].sum() == 8
    with pytest.raises(FeedError, match="not an NPZ file"):
        load_inputs(graph, tmp_path / "bad.npz")
    with pytest.raises(FeedError, match="not an NPZ file"):
        load_inputs(graph, tmp_path / "absent.npz")


def test_an_input_that_is_no_tensor_has_to_be_given() -> None:
    graph = _graph("g (seq(float[8]) s) => (int64 n) { n = SequenceLength(s) }")

    with pytest.raises(FeedError, match=r"--inputs FILE.npz: give an array per member, named 's\[0\]'"):
        random_inputs(graph, seed=0)


@pytest.mark.guards("sequences and optional values given to a session or to `optimize` in Python")
def test_members_of_a_sequence_strings_and_an_absent_value_come_from_a_file(tmp_path: Path) -> None:
    graph = _graph("""g (seq(float[n]) s, optional(float[2]) o, string[2] w) => (int64 n, bool h, string[2] v) {
        n = SequenceLength(s)  h = OptionalHasElement(o)  v = Identity(w) }""")
    given: dict[str, Any] = {"s[0]": np.array([1], np.float32), "s[1]": np.array([2, 3], np.float32)}
    np.savez(tmp_path / "x.npz", **given, w=np.array(["a", "é"]))

    values = load_inputs(graph, tmp_path / "x.npz")

    assert [each.tolist() for each in values["s"]] == [[1], [2, 3]]
    assert (values["o"], values["w"].tolist()) == (None, ["a", "é"])
    with pytest.raises(FeedError, match=r"no value is given .* a list of arrays \(seq\(tensor\(float\)\)\); give an"):
        checked_inputs(graph, {"w": values["w"], "o": None})
    with pytest.raises(FeedError, match=r"'s\[2\]': the model has no such input"):
        checked_inputs(graph, {**values, "s[2]": np.array([1], np.float32)})


@pytest.mark.guards(
    "inputs, or outputs of a node, larger than the machine's memory",
    "refused before anything is allocated",
    area="input",
)
def test_no_values_are_made_up_for_what_no_machine_holds() -> None:
    graph = _graph("g (float[9000000, 9000000] x) => (float[9000000, 9000000] y) { y = Relu(x) }")

    with pytest.raises(FeedError, match=r"'x'.* takes 324,000 GB, more than this machine's memory"):
        random_inputs(graph, 0)


def test_an_axis_that_is_not_there_bounds_nothing() -> None:
    graph = DataflowGraph(
        onnx_ir.from_onnx_text("""
            <ir_version: 10, opset_import: ["" : 21]>
            g (int64[2] ids, float[3] table) => (float[2] y) { y = Gather <axis = 4> (table, ids) }""")
    )

    assert random_inputs(graph, seed=0)["ids"].tolist() in ([0, 0], [0, 1], [1, 0], [1, 1])


@pytest.mark.skipif(sys.platform != "linux", reason="nowhere else is a process held to its addresses")
def test_memory_that_is_too_short_to_make_values_up_is_one_message() -> None:
    graph = _graph("g (float[1024, 1048576] x) => (float[1024, 1048576] y) { y = Relu(x) }")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (1 << 28), hard))
    try:
        with pytest.raises(FeedError, match=r"'x'.* takes 4 GB, and more .*: memory is too short. Give one"):
            random_inputs(graph, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
