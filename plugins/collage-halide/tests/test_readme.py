"""The README's table of operators is that of the code."""

from __future__ import annotations

from benchmarks.halide_operators import README, table, types_of, written
from collage_halide.operators.table import OPERATORS


def test_the_table_is_what_the_command_writes() -> None:
    assert written(README.read_text(encoding="utf-8")) == table()


def test_every_operator_is_taken_in_some_type_that_onnx_has_it_in() -> None:
    assert {operator for operator in OPERATORS if not types_of(operator)} == set()


def test_truth_values_are_of_logic_and_roots_of_floats() -> None:
    assert types_of("And") == ("i1",)
    assert types_of("Sqrt") == ("f32", "f64", "f16", "bf16")
