from __future__ import annotations

import onnx_ir
import pytest
from onnx import defs

from collage_core.ir.op_kind import RANDOM_OPS, STANDARD_KINDS, OpPatternKind, is_pure, kind_of
from collage_core.ir.tensor_spec import TensorSpec, ValueKind


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=shape)


def test_every_operator_of_the_installed_standard_has_a_kind() -> None:
    names = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}

    assert sorted(names - set(STANDARD_KINDS)) == []


def test_an_add_is_elementwise_only_where_nothing_is_broadcast() -> None:
    assert kind_of("Add", "", [spec(2, 3), spec(2, 3)], [spec(2, 3)]) is OpPatternKind.ELEMENTWISE
    assert kind_of("Mul", "", [spec(2, 3), spec()], [spec(2, 3)]) is OpPatternKind.ELEMENTWISE
    assert kind_of("Add", "", [spec(2, 3), spec(3)], [spec(2, 3)]) is OpPatternKind.BROADCAST


def test_a_reduction_over_axes_of_extent_one_is_injective() -> None:
    assert kind_of("ReduceSum", "", [spec(2, 1), spec(1)], [spec(2)]) is OpPatternKind.INJECTIVE
    assert kind_of("ReduceSum", "", [spec(2, 3), spec(1)], [spec(2)]) is OpPatternKind.REDUCTION


def test_an_operator_with_an_unplanned_output_is_opaque() -> None:
    foreign = TensorSpec(name="y", kind=ValueKind.FOREIGN, dtype=onnx_ir.DataType.FLOAT, shape=None)

    assert kind_of("Relu", "", [foreign], [foreign]) is OpPatternKind.OPAQUE


@pytest.mark.parametrize("op", sorted(RANDOM_OPS))
def test_random_operators_are_impure(op: str) -> None:
    assert not is_pure(op)


def test_dropout_is_random_only_in_training() -> None:
    assert is_pure("Dropout")
    assert not is_pure("Dropout", training=True)
