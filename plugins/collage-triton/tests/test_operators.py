"""Every operator claimed, in every type it is claimed for, on awkward shapes, against ONNX's reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from collage_triton.nest import nest_of
from collage_triton.rules import RULES
from collage_triton.tiles import Tile

from .cases import CASES, Build, D, function_for
from .checking import Checker

TILES = (Tile(32, 8, 1), Tile(2, 4, 1))
"""One holds every row below whole, the other loops over it; neither divides the extents. Only rows need both."""


def cases() -> Iterator[Any]:
    """All of them; by default each type in one way, and each way in one type."""
    for operator, (dtypes, builds) in CASES.items():
        for dtype in dtypes:
            for place, build in enumerate(builds):
                marks = [pytest.mark.slow] if place and dtype is not dtypes[0] else []
                yield pytest.param(operator, dtype, build, id=f"{operator}-{dtype.name.lower()}-{place}", marks=marks)


def test_every_operator_claimed_has_a_case_and_there_are_enough() -> None:
    assert set(CASES) == set(RULES)
    assert len(RULES) >= 60


@pytest.mark.parametrize(("operator", "dtype", "build"), list(cases()))
def test_an_operator_gives_what_the_reference_gives(operator: str, dtype: D, build: Build, check: Checker) -> None:
    function = function_for(build, dtype, operator)
    assert operator in {node.op_type for node in function.model.graph}
    if nest_of(function).form == "product":
        check(function, [Tile(16, 16, 1, 16), Tile(32, 16, 1, 32)], tolerance=8.0)
        return
    check(function, TILES if nest_of(function).form == "rows" else TILES[:1], tolerance=4.0)
