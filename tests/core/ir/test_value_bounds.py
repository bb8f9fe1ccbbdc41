from __future__ import annotations

from collections.abc import Callable

import onnx_ir
import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.tensor_spec import ValueKind

Parsed = Callable[..., onnx_ir.Model]


def bound(parsed: Parsed, text: str, name: str = "y") -> tuple[int, ...] | None:
    graph = DataflowGraph(parsed(text))
    values = {value.name: value for node in graph.nodes for value in node.outputs}
    spec = graph.spec(values[name])
    assert spec.kind is (ValueKind.FOREIGN if spec.bound is None else ValueKind.BOUNDED)
    return spec.bound


NMS = """g (float[2,100,4] boxes, float[2,5,100] scores) => (int64[N,3] s, float[A,B] y)
    <int64 most = {10}, float iou = {0.5}, int64[1] starts = {2}, int64[1] ends = {3}, int64[1] axes = {1},
     int64[1] last = {1}> {
    s = NonMaxSuppression(boxes, scores, most, iou)
    i = Slice(s, starts, ends, axes)
    j = Squeeze(i, last)
    first = ReduceMax<keepdims=0>(boxes, zero)
    y = Gather(first, j) }""".replace("<int64 most", "<int64[1] zero = {0}, int64 most")


@pytest.mark.parametrize(("name", "expected"), [("s", (100, 3)), ("j", (100,)), ("y", (100, 4))])
def test_selected_boxes_are_bounded_through_slices_and_gathers(
    parsed: Parsed, name: str, expected: tuple[int, ...]
) -> None:
    assert bound(parsed, NMS, name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[2,3] x) => (int64[2,N] y) { y = NonZero(x) }", (2, 6)),
        ("g (float[2,3] x) => (float[N] y) { y = Unique(x) }", (6,)),
        ("g (float[2,3] x) => (float[2,N] y) { y = Unique<axis=1>(x) }", (2, 3)),
        ("g (float[2,3] x, bool[2] c) => (float[2,N] y) { y = Compress<axis=1>(x, c) }", (2, 2)),
        ("g (float[2,9] x, int64[1] k) => (float[2,N] y, int64[2,N] i) { y, i = TopK(x, k) }", (2, 9)),
        (
            "g (float[2,3] x, float[1] b) => (float[N] y) { a = Unique(x) e = Exp(a) y = Add(e, b) }",
            (6,),
        ),
        (
            "g (float[2,3] x) => (int32[N,2] y) { a = NonZero(x) t = Transpose(a) y = Cast<to=6>(t) }",
            (6, 2),
        ),
        ("g (float[N] x) => (float[N] y) { y = Relu(x) }", None),
    ],
)
def test_bounds(parsed: Parsed, text: str, expected: tuple[int, ...] | None) -> None:
    assert bound(parsed, text) == expected


def test_a_bound_that_would_reserve_gigabytes_is_foreign(parsed: Parsed) -> None:
    assert bound(parsed, "g (float[3,8000,8000] x) => (int64[3,N] y) { y = NonZero(x) }") is None


def test_sequences_and_strings_are_foreign(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            "g (float[2] x, string[2] t) => (seq(float[2]) y, string[2] u) { y = SequenceConstruct(x) u = Identity(t) }"
        )
    )

    assert {graph.spec(value).kind for node in graph.nodes for value in node.outputs} == {ValueKind.FOREIGN}
