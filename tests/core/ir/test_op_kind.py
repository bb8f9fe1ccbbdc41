from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir
import pytest
from onnx import defs
from onnx.reference import ReferenceEvaluator

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.op_kind import RANDOM_OPS, OpPatternKind, is_pure, known_kind
from collage_core.ir.operators.refined_kind import kind_of
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

Parsed = Callable[..., onnx_ir.Model]

KINDS = {
    OpPatternKind.ELEMENTWISE: """
(float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Add(x, z) }
(float[2,3] x, float z) => (float[2,3] y) { y = Mul(x, z) }
(float[2,3] x) => (float[2,3] y) { y = Clip(x, , ) }
(float[2,3] x) => (float[2,3] y) <int64[2] s = {2,3}> { y = Reshape(x, s) }
(float[2,3] x) => (float[2,3] y) <int64[2] s = {1,3}> { y = Expand(x, s) }
(float[2,3] x) => (float[2,3] y) <int64[2] s = {1,1}> { y = Tile(x, s) }
(float[2,3] x) => (float[2,3] y) <int64[1] b = {0}, int64[1] e = {9}> { y = Slice(x, b, e) }
(float[2,1,3,1] x) => (float[2,1,3,1] y) { y = Transpose<perm = [0,3,2,1]>(x) }
(float[2,3] x) => (float[2,3] y) { y = Concat<axis = 1>(x) }
(float[2,1] x) => (float[2,1] y) <int64[1] i = {0}> { y = Gather<axis = 1>(x, i) }
(float[2,1] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceL1(x, a) }
(float[2,1] x) => (float[2,1] y) { y = Softmax<axis = 1>(x) }
(float[2,3,1,1] x) => (float[2,3,1,1] y) { y = GlobalAveragePool(x) }
(float[1,2,3,3] x) => (float[1,2,3,3] y) { y = MaxPool<kernel_shape = [1,1]>(x) }
""",
    OpPatternKind.BROADCAST: """
(float[2,3] x, float[3] z) => (float[2,3] y) { y = Add(x, z) }
(float[2,3] x, float[2,1] z) => (float[2,3] y) { y = PRelu(x, z) }
(float[2,1] x) => (float[2,3] y) <int64[2] s = {2,3}> { y = Expand(x, s) }
(float[2,1] x) => (float[2,3] y) <int64[3] i = {0,0,0}> { y = Gather<axis = 1>(x, i) }
(float[2,1] x, float[1,3] z) => (float[2,3] y) { y = MatMul(x, z) }
(float[2,1] x, float[1,3] z) => (float[2,3] y) { y = Gemm(x, z) }
(float[2,3] x, float[3] z) => (float[2,3] y) { y = Einsum<equation = "ij,j->ij">(x, z) }
""",
    OpPatternKind.INJECTIVE: """
(float[2,3] x) => (float[3,2] y) <int64[2] s = {3,2}> { y = Reshape(x, s) }
(float[2,3] x) => (float[3,2] y) { y = Transpose<perm = [1,0]>(x) }
(float[2,3] x) => (float[2,3] y) <int64[1] b={-1}, int64[1] e={-9}, int64[1] a={1}, int64[1] s={-1}>
{ y = Slice(x, b, e, a, s) }
(float[2,3] x) => (float[2] y) <int64 i = {1}> { y = Gather<axis = 1>(x, i) }
(float[2,3] x, float[2,2] z) => (float[2,5] y) { y = Concat<axis = 1>(x, z) }
(float[2,1] x) => (float[2] y) <int64[1] a = {1}> { y = ReduceMax<keepdims = 0>(x, a) }
(float[2,3] x) => (float[3,2] y) { y = Einsum<equation = "ij->ji">(x) }
(float[2,3] x, float[2] z) => (float[3,2] y) { y = Einsum<equation = "ij,i->ji">(x, z) }
(float[2,3] x) => (float[2,6] y) <int64[2] s = {1,2}> { y = Tile(x, s) }
(float[2,1] x, float[3,1] z) => (float[2,3] y) { y = Gemm<transB = 1>(x, z) }
(float[1,2] x, float[1,3] z) => (float[2,3] y) { y = Gemm<transA = 1>(x, z) }
(float[2,1] x, float[1] z) => (float[2] y) { y = MatMul(x, z) }
(float[1,4,1,1] x) => (float[1,1,2,2] y) { y = DepthToSpace<blocksize = 2>(x) }
""",
    OpPatternKind.REDUCTION: """
(float[2,3] x) => (float[2] y) <int64[1] a = {1}> { y = ReduceSum<keepdims = 0>(x, a) }
(float[1,3] x) => (float[1] y) <int64[1] a = {1}> { y = ReduceSum<keepdims = 0>(x, a) }
(float[2,3] x) => (float[2,3] y) { y = Softmax<axis = 1>(x) }
(float[2,3] x) => (float[2,3] y) { y = Softmax(x) }
(float[2,3] x, float[3] z) => (float[2] y) { y = MatMul(x, z) }
(float[3] x, float[3] z) => (float y) { y = MatMul(x, z) }
(float[2,3] x, float[3,1] z) => (float[2,1] y) { y = MatMul(x, z) }
(float[2,3] x, float[1,3] z) => (float[2,1] y) { y = Gemm<transB = 1>(x, z) }
(float[1,2,3,3] x) => (float[1,2,1,1] y) { y = AveragePool<kernel_shape = [3,3]>(x) }
(float[2,3] x) => (float[2] y) { y = Einsum<equation = "ij->i">(x) }
(float[2,3] x, float[3] z) => (float[2] y) { y = Einsum<equation = "ij,j->i">(x, z) }
(float[2,3] x, float[3] z) => (float[2] y) { y = Einsum<equation = "ij,j">(x, z) }
""",
    OpPatternKind.OUT_ELEMENTWISE_FUSABLE: """
(float[1,3] x, float[3,2] z) => (float[1,2] y) { y = MatMul(x, z) }
(float[3] x, float[3,2] z) => (float[2] y) { y = MatMul(x, z) }
(float[3,2] x, float[2,3] z) => (float[2,2] y) { y = Gemm<transA = 1, transB = 1>(x, z) }
(float[1,2,3,3] x, float[2,2,1,1] w) => (float[1,2,3,3] y) { y = Conv(x, w) }
(float[1,2,3,3] x, float[2,1,3,3] w) => (float[1,2,3,3] y) { y = Conv<group = 2, pads = [1,1,1,1]>(x, w) }
(float[1,2,3,3] x) => (float[1,2,2,2] y) { y = AveragePool<kernel_shape = [2,2]>(x) }
(float[2,3] x, float[3,4] z) => (float[2,4] y) { y = Einsum<equation = "ij,jk->ik">(x, z) }
""",
}
CASES = [
    pytest.param(f"g {text}", kind, id=f"{kind.name}-{number}")
    for kind, texts in KINDS.items()
    for number, text in enumerate(texts.replace("\n{", " {").strip().splitlines())
]


def static_shape(value: onnx_ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return value.shape.numpy()


def reads(model: onnx_ir.Model) -> Iterator[tuple[tuple[int, ...], dict[tuple[int, ...], set[tuple[int, ...]]]]]:
    """For each input its shape, and which of its elements each element of the output is seen to depend on."""
    session = ReferenceEvaluator(onnx_ir.to_proto(model))
    draw = np.random.default_rng(0)
    feeds = {
        str(value.name): draw.uniform(0.5, 1.5, static_shape(value)).astype(np.float32) for value in model.graph.inputs
    }
    [before] = session.run(None, feeds)
    for name, array in feeds.items():
        found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for place, change in itertools.product(np.ndindex(array.shape), (9, -9)):
            other = array.copy()
            other[place] += change
            [after] = session.run(None, {**feeds, name: other})
            for changed in np.argwhere(np.asarray(after) != before):
                found.setdefault(tuple(changed.tolist()), set()).add(place)
        yield array.shape, found


def kind_seen(model: onnx_ir.Model) -> OpPatternKind:
    """The smallest kind whose definition allows for what elements are seen to depend on; REDUCTION for all others."""
    shape = static_shape(model.graph.outputs[0])
    kind = OpPatternKind.ELEMENTWISE
    for source, found in reads(model):
        if any(len(places) > 1 for places in found.values()):
            return OpPatternKind.REDUCTION
        try:
            own = np.broadcast_to(np.arange(np.prod(source, dtype=int)).reshape(source), shape)
        except ValueError:
            kind = max(kind, OpPatternKind.INJECTIVE)
            continue
        stays = all(own[at] == np.ravel_multi_index(next(iter(places)), source) for at, places in found.items())
        if not stays:
            kind = max(kind, OpPatternKind.INJECTIVE)
        elif source not in (shape, ()):
            kind = max(kind, OpPatternKind.BROADCAST)
    return kind


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_a_kind_is_what_the_operator_is_seen_to_read(parsed: Parsed, text: str, kind: OpPatternKind) -> None:
    model = parsed(text)

    assert DataflowGraph(model).kinds == (kind,)
    assert kind_seen(model) is min(kind, OpPatternKind.REDUCTION)


def test_every_operator_of_the_installed_standard_has_a_kind() -> None:
    schemas = {(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}

    assert sorted(each for each in schemas if known_kind(each[1], each[0]) is None) == []


def test_batch_normalisation_computes_statistics_only_in_training() -> None:
    data, channel = spec(1, 2, 3), spec(2)
    inputs = [data, channel, channel, channel, channel]

    assert kind_of("BatchNormalization", "", inputs, [data]) is OpPatternKind.BROADCAST
    assert kind_of("BatchNormalization", "", inputs, [data], {"training_mode": 1}) is OpPatternKind.REDUCTION


def test_a_convolution_of_one_place_by_channel_is_a_factor() -> None:
    data, weight = spec(1, 2, 3, 3), spec(2, 1, 1, 1)

    def kind(**attributes: object) -> OpPatternKind:
        return kind_of("Conv", "", [data, weight], [data], {"group": 2, **attributes})

    assert kind() is OpPatternKind.BROADCAST
    assert kind(strides=(2, 2), pads=(1, 1, 1, 1)) is OpPatternKind.OUT_ELEMENTWISE_FUSABLE


def test_an_unknown_input_leaves_the_kind_of_the_name() -> None:
    foreign = TensorSpec(name="z", kind=ValueKind.FOREIGN, dtype=onnx_ir.DataType.FLOAT, shape=None)

    assert kind_of("Add", "", [spec(2, 3), foreign], [spec(2, 3)]) is OpPatternKind.BROADCAST


def test_an_operator_with_an_unplanned_output_is_opaque() -> None:
    foreign = TensorSpec(name="y", kind=ValueKind.FOREIGN, dtype=onnx_ir.DataType.FLOAT, shape=None)

    assert kind_of("Relu", "", [foreign], [foreign]) is OpPatternKind.OPAQUE


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=shape)


@pytest.mark.parametrize("op", sorted(RANDOM_OPS))
def test_random_operators_are_impure(op: str) -> None:
    assert not is_pure(op)


def test_dropout_is_random_only_in_training() -> None:
    assert is_pure("Dropout")
    assert not is_pure("Dropout", training=True)
