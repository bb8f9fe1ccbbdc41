from __future__ import annotations

import itertools
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.cli.options.parameters import FiniteRange, check_overwriting, duration, input_shape, shape_sets


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("1.5m", 90), ("250ms", 0.25), ("5", 5), ("2 ", 2)],
)
def test_times(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "m", "10x", "1h 30m", "-5s", "0", "ten", "1e3", "9" * 400])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        duration(text)


@given(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1).filter(lambda name: name.strip()),
    st.lists(st.integers(0, 10**6), max_size=5),
)
def test_shapes_are_read_back_whatever_the_name(name: str, shape: list[int]) -> None:
    assert input_shape(f"{name}:[{', '.join(map(str, shape))}]") == (name, (tuple(shape),))


@pytest.mark.parametrize(
    "text", ["x", "x:", ":[1]", "x:[1", "x:[a]", "x:[-1]", "x:[1,,2]", "x:1x", "x:[1.5]", "x:[1|]", "x:[|2]"]
)
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not an input shape"):
        input_shape(text)


def test_a_scalar_has_an_empty_shape() -> None:
    assert input_shape("x:[]") == ("x", ((),))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3))
def test_alternatives_make_every_shape_once(axes: list[list[int]]) -> None:
    text = ",".join("|".join(map(str, axis)) for axis in axes)

    _, shapes = input_shape(f"x:[{text}]")

    assert sorted(shapes) == sorted(set(itertools.product(*axes)))


def test_too_many_shapes_are_refused() -> None:
    numbers = "|".join(map(str, range(9)))
    with pytest.raises(click.BadParameter, match="more than 64 shapes"):
        input_shape(f"x:[{numbers},{numbers}]")
    with pytest.raises(click.BadParameter, match="more than 64 sets"):
        shape_sets(tuple(input_shape(f"{name}:[{numbers}]") for name in "xy"))


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "x"])
def test_what_is_no_finite_number(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0).convert(text, None, None)
    assert FiniteRange(min=0).convert("1e-3", None, None) == 1e-3


def test_results_go_to_files_of_their_own(tmp_path: Path) -> None:
    read, other = tmp_path / "read", tmp_path / "other"
    read.touch()

    check_overwriting({"--json": Path("-"), "--output": other, "--profile": None}, [read, None])
    check_overwriting({"--json": Path("-"), "--output": Path("-")}, [])
    for written in ({"-o": read}, {"-o": tmp_path / "x" / ".." / "read"}, {"-o": other, "--json": other}):
        with pytest.raises(click.UsageError, match="would overwrite"):
            check_overwriting(written, [read])
