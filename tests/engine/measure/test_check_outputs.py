"""A kernel is judged as plans use it: after many calls, bound to other memory, and on other values and the first."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Tolerance
from collage.measure.wire.values import encode_value
from collage.measure.worker import check_outputs
from collage.measure.worker.check_outputs import Another, Bound, OutputCheck
from collage.measure.worker.failing import Stopped
from collage.measure.worker.guarded_memory import aligned_buffer
from collage.measure.worker.verdicts import judged
from collage.reference import evaluate
from collage_core.contract import BoundCall, Buffer, KernelFunction, TensorSpec, ValueKind

X = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
SPECS = tuple(TensorSpec(name=name, dtype=onnx_ir.DataType.FLOAT, shape=X.shape) for name in ("x", "y"))
MODEL = onnx_ir.from_onnx_text(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[4,6] x) => (float[4,6] y) { y = Mul(x, x) }'
)


class Squares:
    """A kernel that squares its input, and is wrong in some way.

    Args:
        way: The way; empty for none.
    """

    def __init__(self, way: str) -> None:
        self._way = way
        self._bindings = 0

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        way, [x], [y] = self._way, inputs, outputs
        self._bindings += 1
        number, calls, kept = self._bindings, 0, [x.array.copy()]

        def run() -> None:
            nonlocal calls
            calls += 1
            read = x.array
            if way == "reads its input when bound":
                read = kept[0]
            if way == "keeps what its input held at the first call":
                kept[0] = read = x.array.copy() if calls == 1 else kept[0]
            if way == "keeps the second values":
                if len(kept) == 1 and not np.array_equal(kept[0], x.array):
                    kept.append(x.array.copy())
                read = kept[-1]
            np.square(read, out=y.array)
            if way == "rounds otherwise each time":
                np.multiply(y.array, np.float32(1 + calls * 2**-23), out=y.array)
            if way == "is wrong from the third call on" and calls > 2:
                y.array[1, 2] += 1
            if way == "is wrong elsewhere" and number > 1:
                y.array[1, 2] += 1
            if way == "writes behind its output from the third call on" and calls > 2:
                ctypes.memset(y.array.ctypes.data + y.array.nbytes, 0, 4)
            if way == "writes its input from the third call on" and calls > 2:
                x.array[0, 0] += 1

        return run


def another(kernel: Any, specs: Sequence[TensorSpec], values: Sequence[Any]) -> Another:
    """Bind a kernel of one input and one output to memory of its own."""
    inputs, outputs = (aligned_buffer(specs[0]),), (aligned_buffer(specs[1]),)
    inputs[0].put(values[0])
    bound = Bound(kernel, kernel.bind(inputs, outputs, None), inputs, outputs)
    return bound, bound.call


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[str], float]:
    """Judges a kernel as a worker does: twice, and as it is used."""
    store = BlobStore(tmp_path)
    run = evaluate(MODEL, {"x": X}, conditioned=True)
    right = dataclasses.replace(encode_value(run.values["y"], store), conditioning=run.conditioning["y"])
    function = KernelFunction(name="k", model=MODEL, inputs=SPECS[:1], outputs=SPECS[1:], constants={})
    check = OutputCheck([X], [right], store, function, correct=True, tolerance=Tolerance(), deterministic=False)

    def error_of(way: str) -> float:
        kernel = Squares(way)
        first, call = another(kernel, SPECS, [X])
        error, _ = check.twice(first, call)
        return max(error, check.as_used(first, call, functools.partial(another, kernel, SPECS)))

    return error_of


def test_a_right_kernel_is_right_as_it_is_used(judge: Callable[[str], float]) -> None:
    assert judge("") < 1e-6


@pytest.mark.guards(
    "a kernel that is wrong from some call on, bound to other memory or on other values",
    "it is refused before it is in a plan",
    area="toolchains",
)
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("is wrong from the third call on", "wrong numbers after many calls: output 'y': 1 of 24 elements"),
        ("writes behind its output from the third call on", "it writes behind the memory of 'y'"),
        ("is wrong elsewhere", "it disagrees with itself: output 'y': 1 of 24 elements"),
        ("reads its input when bound", "it disagrees with itself: output 'y'"),
        ("keeps what its input held at the first call", "it disagrees with itself: output 'y'"),
        ("writes its input from the third call on", "it writes its input 'x'"),
        ("keeps the second values", "on the first values again, or later than its call: output 'y'"),
    ],
)
def test_what_shows_in_use_only_is_found(way: str, said: str, judge: Callable[[str], float]) -> None:
    with pytest.raises(Stopped) as stopped:
        judge(way)

    assert said in stopped.value.outcome.reason


@pytest.mark.parametrize(("way", "judgements"), [("", 1), ("rounds otherwise each time", 5)])
def test_what_was_judged_is_judged_again_only_with_other_bits(
    way: str, judgements: int, judge: Callable[[str], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float | str] = []

    def counted(*arguments: Any) -> float | str:
        calls.append(judged(*arguments))
        return calls[-1]

    monkeypatch.setattr(check_outputs, "judged", counted)

    error = judge(way)

    assert len(calls) == judgements
    assert error == max(float(each) for each in calls)


def test_text_is_judged_each_time(tmp_path: Path) -> None:
    """Arrays of objects have no bits that could be the same."""
    model = onnx_ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (string[2] s) => (string[2] y) { y = Identity(s) }'
    )
    text = np.array(["a", "b"], object)
    kind, dtype = ValueKind.FOREIGN, onnx_ir.DataType.STRING
    specs = [TensorSpec(name=name, kind=kind, dtype=dtype, shape=(2,)) for name in ("s", "y")]
    store = BlobStore(tmp_path)
    function = KernelFunction(name="k", model=model, inputs=(specs[0],), outputs=(specs[1],), constants={})
    right = encode_value(text, store)
    check = OutputCheck([text], [right], store, function, correct=True, tolerance=Tolerance(), deterministic=False)
    inputs, outputs = (Buffer(specs[0]),), (Buffer(specs[1]),)
    inputs[0].put(text)
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        outputs[0].put(np.array(["a", "b" if calls < 3 else "c"], object))

    bound = Bound(Squares(""), call, inputs, outputs)
    assert check.twice(bound, call) == (0.0, True)
    with pytest.raises(Stopped) as stopped:
        check.as_used(bound, call, lambda values: (bound, call))

    assert "wrong numbers after many calls" in stopped.value.outcome.reason


class TableOfEachRow:
    """A kernel that reads a table for each row of indices; that of the first row has two entries."""

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        [indices], [y] = inputs, outputs

        def run() -> None:
            if indices.array[0].max() > 1:
                raise IndexError("the first table has two entries")
            np.negative(indices.array, out=y.array)

        return run


def test_indices_of_one_row_are_not_tried_in_another(tmp_path: Path) -> None:
    model = onnx_ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[2,3] i) => (int64[2,3] y) { y = Neg(i) }'
    )
    indices = np.array([[0, 1, 0], [5, 4, 3]], np.int64)
    specs = [TensorSpec(name=name, dtype=onnx_ir.DataType.INT64, shape=(2, 3)) for name in ("i", "y")]
    store, kernel = BlobStore(tmp_path), TableOfEachRow()
    function = KernelFunction(name="k", model=model, inputs=(specs[0],), outputs=(specs[1],), constants={})
    right = encode_value(-indices, store)
    check = OutputCheck([indices], [right], store, function, correct=True, tolerance=Tolerance(), deterministic=False)

    first, call = another(kernel, specs, [indices])
    assert check.as_used(first, call, functools.partial(another, kernel, specs)) == 0
