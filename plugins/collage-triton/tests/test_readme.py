"""The README's tables of what is needed and of operators are those of the code."""

from __future__ import annotations

import functools

import pytest

from benchmarks.triton_claims import README
from benchmarks.triton_operators import needs, rows, tables, types_of, written
from collage_triton.elements import ELEMENT_TYPES
from collage_triton.rules import RULES

from .cases import CASES

SOME = ("MatMul", "Softmax", "Relu", "Gather", "MaxPool", "Sin", "And", "Cast", "Conv")


@functools.cache
def table() -> dict[str, tuple[str, ...]]:
    """Types by operator, from the README."""
    lines = written(README.read_text(encoding="utf-8"))
    start = lines.index("| Types | Operators |") + 2
    found: dict[str, tuple[str, ...]] = {}
    for line in lines[start:]:
        types, operators = (tuple(cell.strip().split(", ")) for cell in line.strip("| ").split(" | "))
        assert not found.keys() & set(operators)
        found.update(dict.fromkeys(operators, types))
    return found


def test_every_operator_of_the_pattern_table_has_its_types_once() -> None:
    assert set(table()) == set(RULES)


def test_what_is_tried_against_the_reference_is_claimed() -> None:
    unclaimed = {
        (operator, ELEMENT_TYPES[dtype])
        for operator, (dtypes, _) in CASES.items()
        for dtype in dtypes
        if ELEMENT_TYPES[dtype] not in table()[operator]
    }

    assert unclaimed == {("Shrink", "bf16")}  # which ONNX does not have


def test_products_are_of_floats_and_truth_values_of_logic() -> None:
    """As the compiler's documentation says, not as its predicate does."""
    for operator in ("MatMul", "Gemm", "Conv", "ConvTranspose"):
        assert set(table()[operator]) == {"f32", "f16", "bf16"}
    assert table()["And"] == ("i1",)


@pytest.mark.parametrize("operator", SOME)
def test_the_types_of_an_operator_are_those_that_are_taken(operator: str) -> None:
    assert table()[operator] == types_of(operator)


def test_what_is_needed_is_what_is_checked_and_declared() -> None:
    lines = written(README.read_text(encoding="utf-8"))

    assert lines[2 : lines.index("")] == [f"| {name} | {what} |" for name, what in needs()]


@pytest.mark.slow
def test_the_tables_are_what_the_command_writes() -> None:
    assert written(README.read_text(encoding="utf-8")) == tables()


def test_operators_of_the_same_types_share_a_row_and_the_longest_row_is_first() -> None:
    found = list(rows({"B": ("f32",), "A": ("f32", "f16"), "C": ("f32", "f16")}))

    assert found == [("f32, f16", "A, C"), ("f32", "B")]
