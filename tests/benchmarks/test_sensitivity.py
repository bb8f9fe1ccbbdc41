"""Correlations of `sensitivity`, its limits, and the BERT of 12 layers."""

from __future__ import annotations

import copy
from typing import Any

import onnx
import pytest

from benchmarks.models.stacked import bert_base_12
from benchmarks.models.weights import is_declared
from benchmarks.sensitivity import RANKED, by_product, correlations, exceeded, spearman
from collage.precision.sensitivity import groups as grouping
from collage.precision.sensitivity.groups import product_groups
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage_core.ir.operators.quantising import Range
from tests.engine.precision.chains import chain

SINGLE = {
    "int8": [[1.0, 2.0], [2.0, 1.0], [3.0, 3.0], [5.0, 6.0]],
    "bf16": [[0.1, 0.1], [0.2, 0.2], [0.4, 0.3], [0.3, 0.4]],
    "flops": [1.0] * 4,
}
COUNTS = {"products": 73, "groups": 73, "reference": 1, "passes": 117, "compilations": 2}
NONE = {**COUNTS, "reference": 0, "passes": 0, "compilations": 0}


def report(**changed: Any) -> dict[str, Any]:
    rows = [{"layers": 12, "correlations": dict.fromkeys(RANKED, 0.95)}]
    return {"first": COUNTS, "again": NONE, "models": [{"model": "m", "rows": rows}], **changed}


def test_ranks_of_equal_values_are_their_mean() -> None:
    assert spearman([1, 2, 2, 3], [10, 20, 20, 30]) == pytest.approx(1.0)
    assert spearman([1, 1, 2, 2], [1, 2, 1, 2]) == pytest.approx(0.0)


def test_what_is_found_of_single_products_correlates_by_type_and_region() -> None:
    found = {"int8": [1.0, 2.0, 3.0, 5.0], "bf16": [0.2, 0.1, 0.5, 0.5], "regions": [[0, 1], [2, 3]]}

    result = correlations(SINGLE, found, [0.9, 0.7])

    assert result["int8"] == pytest.approx(1.0)
    assert result["bf16, regions"] == pytest.approx(-1.0), "one region at a time is in the opposite order"
    assert result["bf16, sums"] == pytest.approx(1.0), "sums of squares are in the same order"
    assert result["bf16"] == pytest.approx(spearman([2, 1, 3, 3], [1, 2, 4, 3]))
    assert result["order"] == pytest.approx(1.0)
    assert result["other sample"] == result["itself"] == pytest.approx(0.8)


def test_products_have_their_share_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MOST_GROUPS", 3)
    monkeypatch.setattr(grouping, "MOST_ROUNDED", 2)
    groups = product_groups(chain(6), {number: Range(-1.0, 1.0) for number in range(6)})

    found = by_product(Sensitivities(groups=groups, int8=[2.0, 4.0, 6.0], bf16=[1.0, 1.0, 1.0]))

    assert found["int8"] == pytest.approx([each / 2**0.5 for each in (2, 2, 4, 4, 6, 6)])
    assert found["regions"] == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 0),
        ({"first": {**COUNTS, "passes": 120}}, 1),
        ({"first": {**COUNTS, "compilations": 21}}, 1),
        ({"again": {**NONE, "reference": 1}}, 1),
        ({"models": [{"model": "m", "rows": [{"correlations": dict.fromkeys(RANKED, 0.89)}]}]}, 3),
    ],
)
def test_what_takes_too_much_or_ranks_otherwise_is_said(changed: dict[str, Any], count: int) -> None:
    assert len(exceeded(copy.deepcopy(report(**changed)))) == count


def test_the_encoder_is_there_twice_with_weights_of_its_own() -> None:
    model = bert_base_12()

    matrices = {each.name for each in model.graph.initializer if is_declared(each) and len(each.dims) == 2}
    products = [
        node.input[1] for node in model.graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in matrices
    ]
    assert len(products) == len(set(products)) == 12 * 6 + 1
    onnx.shape_inference.infer_shapes(model, strict_mode=True)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
