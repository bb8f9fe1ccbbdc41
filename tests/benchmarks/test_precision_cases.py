"""The fragile block of `precision_cases` bears no lower precision, while the other blocks and float32 do."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from benchmarks.precision_cases import BLOCKS, FLOAT32, FRAGILE, fragile, name_of, precisions, result_of, wrong_in
from collage.reference import relative_error
from collage.report.documents.outputs import plans_json
from tests.engine.report.records import RECORD

Array = np.ndarray[Any, Any]
BOUND = 0.02
PRODUCTS = [f"{name_of(number)}.{which}" for number in range(BLOCKS) for which in ("up", "down")]


def to_float32(array: Array) -> Array:
    return array.astype(np.float32)


def to_bfloat16(array: Array) -> Array:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def to_8_bits(array: Array) -> Array:
    """Round to as many steps as 8-bit integers have: better than those, whose zero is a step."""
    step = (array.max() - array.min()) / 255
    return np.rint(array / step) * step


@functools.cache
def weights() -> dict[str, Array]:
    return {each.name: numpy_helper.to_array(each).astype(np.float64) for each in fragile().graph.initializer}


@functools.cache
def output(rounded: str = "", to: Callable[[Array], Array] = to_float32) -> Array:
    """Compute the model in float64, but for the operands of one product."""
    value = np.random.default_rng(1).normal(size=(64, 512))
    for number in range(BLOCKS):
        read = value
        for place, which in enumerate(("up", "down")):
            name = f"{name_of(number)}.{which}"
            gain, weight = weights().get(f"{name_of(number)}.gain{place}"), weights()[f"{name_of(number)}.w{place}"]
            read = read if gain is None else read * gain
            read = to(read) @ to(weight) if name == rounded else read @ weight
            read = np.maximum(read, 0.0) if which == "up" else read
        value = value + read
    return value


@pytest.mark.parametrize("product", PRODUCTS)
def test_only_the_products_of_the_fragile_block_bear_no_lower_precision(product: str) -> None:
    expected = output()
    errors = {to: relative_error(output(product, to), expected) for to in (to_8_bits, to_bfloat16, to_float32)}

    is_fragile = product.startswith(f"{name_of(FRAGILE)}.")
    assert (errors[to_8_bits] > 5 * BOUND) == is_fragile
    assert (errors[to_bfloat16] > 5 * BOUND) == is_fragile
    if not is_fragile:
        assert max(errors.values()) < BOUND / 2
    assert errors[to_float32] < BOUND / 100


def test_a_product_is_in_what_its_kernel_names_or_in_8_bits() -> None:
    def region(target: str, names: list[str], eight: list[str] | None = None) -> dict[str, Any]:
        return {"target": target, "nodes": names, "precision": None if eight is None else {"int8": eight}}

    regions = [
        region("openvino(precision=int8+bf16)", PRODUCTS[:4], PRODUCTS[:1]),
        region("openvino(precision=int8)", PRODUCTS[4:8], PRODUCTS[4:5]),
        region("openvino(precision=bf16)", PRODUCTS[8:10], []),
        region("onnxruntime", PRODUCTS[10:]),
    ]

    found = precisions(regions)

    assert list(found) == PRODUCTS
    assert [*found.values()] == ["int8", *["bf16"] * 3, "int8", *[FLOAT32] * 3, *["bf16"] * 2, *[FLOAT32] * 2]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, False),
        ({"error": 0.03}, True),
        ({"ratio": 1.1}, True),
        ({"in": dict.fromkeys(PRODUCTS, "int8")}, True),
        ({"in": dict.fromkeys(PRODUCTS, FLOAT32)}, True),
    ],
)
def test_a_plan_is_wrong_beyond_the_bound_or_with_other_precisions_or_if_it_saves_no_time(
    changed: dict[str, Any], wrong: bool
) -> None:
    right = {name: FLOAT32 if name.startswith(name_of(FRAGILE)) else "int8" for name in PRODUCTS}
    result = {"case": "fragile", "bound": BOUND, "error": 0.01, "ratio": 0.5, "in": right}

    assert wrong_in({**result, **changed}) == wrong


def test_a_result_is_what_optimize_writes_of_a_plan() -> None:
    result = result_of("case", BOUND, json.loads(plans_json([RECORD])))

    assert (result["ms"], result["ratio"]) == (96.0, 96.0 / 146.0)
    assert result["nodes"]["k0001"] == ["openvino", 1]
