"""Which typical sizes a range has, and which plans serve which part of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.commands.optimizing.buckets import in_buckets, merged, shapes_of_samples
from collage_core.errors import FeedError, UsageError
from collage_core.ir.values.size_range import Extent, SizeRange


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model("""
    < ir_version: 10, opset_import: ["": 17] >
    g (float[batch, n] x, float[n] mask) => (float[batch, n] y) { y = Mul(x, mask) }""")
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    onnx.save(made, path)
    return path


def of(least: int, most: int, typical: int) -> dict[str, tuple[Extent, ...]]:
    return {"x": (1, SizeRange(least, most, typical)), "mask": (SizeRange(least, most, typical),)}


def typical(found: Sequence[Any]) -> list[int]:
    return [each["x"][1].typical for each in found]


def test_a_range_has_the_middles_of_equal_parts(model: Path) -> None:
    found = in_buckets(model, [of(1, 100, 50), {"x": (1, 7), "mask": (7,)}], 4)

    assert typical(found[:4]) == [13, 38, 63, 88]
    assert found[4:] == ({"x": (1, 7), "mask": (7,)},)
    assert in_buckets(model, [of(1, 100, 50)], 1) == (of(1, 100, 50),)
    assert typical(in_buckets(model, [of(3, 4, 3)], 9)) == [3, 4]


def test_sizes_that_were_seen_have_parts_of_equal_work(model: Path) -> None:
    seen = [1] * 60 + [10] * 6 + [60]  # as much work in each

    assert typical(in_buckets(model, [of(1, 60, 30)], 3, seen)) == [1, 10, 60]


@pytest.mark.parametrize(
    ("shapes", "buckets", "said"),
    [
        ([{"x": (1, 7), "mask": (7,)}], 2, "no range is given"),
        ([of(1, 9, 5)], 0, "0 is no number of buckets"),
        ([of(1, 9, 4)], 2, r"1\.\.9@4 gives one: leave out @4"),
        ([{"x": (SizeRange(1, 4, 2), SizeRange(1, 9, 4))}], 2, r"2 vary: batch 1\.\.4, n 1\.\.9"),
    ],
)
def test_what_cannot_be_split_is_refused(shapes: Any, buckets: int, said: str, model: Path) -> None:
    with pytest.raises(UsageError, match=said):
        in_buckets(model, shapes, buckets)


def test_neighbours_with_equal_plans_are_one() -> None:
    shapes = [of(1, 100, size) for size in (10, 30, 50, 90)] + [{"x": (1, 7), "mask": (7,)}]

    found = merged(shapes, ["a", "a", "b", "a", "a"])

    assert [(each.number, each.shapes) for each in found] == [
        (1, of(1, 40, 30)),
        (2, of(41, 70, 50)),
        (3, of(71, 100, 90)),
        (4, {"x": (1, 7), "mask": (7,)}),
    ]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8, unique=True).map(sorted),
    st.lists(st.sampled_from("ab"), min_size=8, max_size=8),
)
def test_each_size_has_one_plan_which_was_found_for_a_size_of_its_part(sizes: list[int], plans: list[str]) -> None:
    found = merged([of(1, 60, size) for size in sizes], plans[: len(sizes)])

    parts = [each.shapes["x"][1] for each in found]
    for size in range(1, 61):
        assert sum(size in part for part in parts if isinstance(part, SizeRange)) == 1
    for each, part in zip(found, parts, strict=True):
        assert isinstance(part, SizeRange)
        assert sizes[each.number] == part.typical
        assert all(plans[number] == plans[each.number] for number, size in enumerate(sizes) if size in part)


def test_samples_have_ranges_where_their_sizes_differ(model: Path) -> None:
    samples = [{"x": np.ones((2, size)), "mask": np.ones(size)} for size in (4, 4, 9, 5)]

    shapes, seen = shapes_of_samples(model, samples)

    assert shapes == {"mask": (SizeRange(4, 9, 5),), "x": (2, SizeRange(4, 9, 5))}
    assert seen == [4, 4, 9, 5]
    with pytest.raises(FeedError, match="no value for this input"):
        shapes_of_samples(model, [{"x": np.ones((1, 2))}])
    with pytest.raises(FeedError, match="several ranks"):
        shapes_of_samples(model, [{"x": np.ones((1, 2)), "mask": np.ones(2)}, {"x": np.ones(2), "mask": np.ones(2)}])
