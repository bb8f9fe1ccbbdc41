from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from collage.report.fitted_table import FittedTable, add_cells, plain_table
from collage.report.text.tables import optimize_summary
from tests.engine.report.records import ESTIMATED, RECORD


def shown(table: RenderableType, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(table)
    return stream.getvalue()


def table() -> FittedTable:
    made = plain_table("contender", "toolchains", ">kernels", ">p50 ms", drop=("toolchains", "kernels"))
    add_cells(made, "collage", "onnxruntime, openvino", "3", "96.00")
    add_cells(made, "openvino(precision=bf16)", "openvino", "1", "46.00")
    return made


def test_a_wide_screen_shows_every_column() -> None:
    assert shown(table(), 100).split()[:5] == ["contender", "toolchains", "kernels", "p50", "ms"]


@pytest.mark.parametrize(
    ("width", "headers"),
    [(60, ["contender", "toolchains", "kernels", "p50", "ms"]), (48, ["contender", "kernels", "p50", "ms"])],
)
def test_a_narrow_screen_leaves_out_columns_in_order(width: int, headers: list[str]) -> None:
    assert shown(table(), width).splitlines()[1].split() == headers


def test_columns_that_may_not_go_stay() -> None:
    assert shown(table(), 36).splitlines()[1].split() == ["contender", "p50", "ms"]
    assert "…" in shown(table(), 20), "what is cut is seen to be"


def test_the_table_is_as_it_was_afterwards() -> None:
    made = table()
    before = shown(made, 100)

    shown(made, 40)

    assert shown(made, 100) == before


@given(
    words=st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=1, max_size=6),
    width=st.integers(30, 120),
)
def test_words_are_broken_only_where_nothing_else_is_left(words: list[str], width: int) -> None:
    made = plain_table("name", "said", ">more", drop=("more", "said"))
    add_cells(made, words[0], " ".join(words), "12345")

    text = shown(made, width)

    assert words[0] in text.split(), "the longest name fits into thirty columns"
    said = set(text.split())
    assert not [word for word in words if word not in said and "said" in said]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("record", [RECORD, ESTIMATED], ids=["plain", "estimated"])
def test_the_summary_of_optimize_breaks_no_word(record: object, width: int) -> None:
    summary = optimize_summary(record)  # type: ignore[arg-type]
    wide, narrow = shown(summary, 400), shown(summary, width)

    assert max(map(len, narrow.splitlines())) <= width
    assert set(narrow.split()) <= {*wide.split(), *{"─" * n for n in range(1, 401)}}
