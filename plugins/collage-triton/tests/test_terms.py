"""Index arithmetic: whatever is simplified on the way, the numbers are those of NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_triton.terms import Term, Terms, Var, value_of


def evaluated(term: Term, values: Mapping[Var, int]) -> int:
    """A term's number; it has to stay below what the term promises."""
    if term.op == "const":
        return int(value_of(term))
    if term.op == "var":
        assert isinstance(term.data, Var)
        return values[term.data]
    a, b = (evaluated(each, values) for each in term.operands)
    found = {"add": a + b, "mul": a * b, "floordiv": a // b if b else 0, "mod": a % b if b else 0}[term.op]
    assert term.below is None or 0 <= found < term.below
    return found


@st.composite
def views(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Shapes of as many elements as each other, of small factors so that axes are split and joined in every way."""
    factors = draw(st.lists(st.sampled_from((1, 2, 3, 5)), min_size=2, max_size=5))
    shapes = []
    for _ in range(draw(st.integers(2, 4))):
        shuffled = draw(st.permutations(factors))
        cuts = sorted(draw(st.sets(st.integers(1, len(factors) - 1))))
        ends = zip([0, *cuts], [*cuts, len(factors)], strict=True)
        shapes.append(tuple(math.prod(shuffled[start:end]) for start, end in ends))
    return shapes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shapes=views())
def test_views_of_views_end_where_numpy_says(shapes: list[tuple[int, ...]]) -> None:
    t = Terms()
    first = [t.var(f"v{axis}", 0, extent) for axis, extent in enumerate(shapes[0])]
    index = tuple(t.of(var) for var in first)
    for before, after in itertools.pairwise(shapes):
        index = t.unravel(t.ravel(index, before), after)

    for place in np.ndindex(*shapes[0]):
        flat = np.ravel_multi_index(place, shapes[0])
        found = tuple(evaluated(each, dict(zip(first, place, strict=True))) for each in index)
        assert found == tuple(np.unravel_index(flat, shapes[-1]))


@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (15, 12), (180,), (6, 30), (3, 60), (2, 3, 30)])
def test_a_view_and_back_is_the_index_it_was(shape: tuple[int, ...]) -> None:
    t = Terms()
    rows, columns = (t.of(t.var(name, 0, extent)) for name, extent in (("x", 6), ("y", 30)))

    there = t.unravel(t.ravel((rows, columns), (6, 30)), shape)

    assert t.unravel(t.ravel(there, shape), (6, 30)) == (rows, columns)


def test_an_addend_that_comes_twice_is_joined_once() -> None:
    t = Terms()
    var = t.var("x", 0, 12)
    high = t.plus(t.quotient(t.of(var), 4), t.quotient(t.of(var), 4))

    joined = t.ravel((high, t.remainder(t.of(var), 4)), (6, 4))

    assert [evaluated(joined, {var: number}) for number in range(12)] == [
        2 * (number // 4) * 4 + number % 4 for number in range(12)
    ]
