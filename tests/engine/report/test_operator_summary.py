from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.report.text.operator_summary import summarize_operators


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        ([], "nothing"),
        (["Conv"], "Conv"),
        (["Conv", "Relu"], "Conv+Relu"),
        (["Conv", "Relu"] * 3, "Conv+Relu x3"),
        (["Add"] * 4, "Add x4"),
        (["Conv", "Relu", "Conv", "Relu", "MaxPool", "Gemm"], "Conv+Relu x2, MaxPool+Gemm"),
        (["Cast", "Conv", "Relu", "Conv", "Relu"], "Cast, Conv+Relu x2"),
    ],
)
def test_repeated_runs_are_written_once(operators: list[str], text: str) -> None:
    assert summarize_operators(operators) == text


def test_a_long_region_becomes_counts() -> None:
    operators = ["Conv", "Relu", "Conv", "Add", "Relu", "Mul", "Conv", "Sub", "Erf", "Conv", "Div", "Gemm", "Tanh"]

    assert summarize_operators(operators, width=30) == "Conv x4, Relu x2, Add, ..."


@given(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=30))
def test_a_summary_that_is_not_shortened_says_every_operator(operators: list[str]) -> None:
    told: list[str] = []
    for group in summarize_operators(operators, width=1000).split(", "):
        names, _, times = group.partition(" x")
        told += names.split("+") * int(times or 1)

    assert told == operators
