from __future__ import annotations

import math

import numpy as np
import pytest

from collage_core.patterns import Match, is_op, match, wildcard
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from tests.core.patterns.library import formulas
from tests.core.patterns.library.written import Writer

PATTERNS = {
    "gelu": gelu_pattern(approximate="none"),
    "gelu_tanh": gelu_pattern(approximate="tanh"),
    "quick_gelu": quick_gelu_pattern(),
    "silu": silu_pattern(),
}


def written(sort: str, seed: int) -> tuple[Writer, str]:
    to = Writer(seed)
    x = to.given("x", (3, 5))
    match sort:
        case "gelu":
            erf = to.op("Erf", to.times(x, 1 / math.sqrt(2)))
            return to, to.product(x, to.either("Add", erf, to.constant(1)), 0.5)
        case "gelu_tanh" if seed % 2:
            polynomial = to.either("Add", x, to.times(to.cube(x), 0.044715))
            tanh = to.op("Tanh", to.times(polynomial, math.sqrt(2 / math.pi)))
            return to, to.product(x, to.either("Add", tanh, to.constant(1)), 0.5)
        case "gelu_tanh":
            squared = to.times(to.square(x), 0.044715) if seed % 4 else to.either("Mul", to.times(x, 0.044715), x)
            even = to.either("Add", squared, to.constant(1))
            tanh = to.op("Tanh", to.product(x, even, math.sqrt(2 / math.pi)))
            return to, to.product(x, to.either("Add", tanh, to.constant(1)), 0.5)
        case "quick_gelu":
            return to, to.either("Mul", x, to.op("Sigmoid", to.times(x, 1.702)))
        case _:
            return to, to.either("Mul", x, to.op("Sigmoid", x))


@pytest.mark.parametrize("seed", range(32))
@pytest.mark.parametrize("sort", PATTERNS)
def test_what_matches_computes_the_function(sort: str, seed: int) -> None:
    to, output = written(sort, seed)
    graph = to.graph(output)

    found = match(PATTERNS[sort], graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
    result, values = formulas.computed(found)
    np.testing.assert_allclose(result, getattr(formulas, sort)(values[found.captures["x"]]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sort", ["gelu", "gelu_tanh", "quick_gelu"])
def test_with_any_other_constant_it_is_another_function(sort: str, seed: int) -> None:
    to, output = written(sort, seed)
    for name, array in to.constants.items():
        graph = to.graph(output, **{name: (array * 1.003).astype(array.dtype)})

        assert not match(PATTERNS[sort], graph, len(graph) - 1), name


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sort", PATTERNS)
def test_one_function_is_not_taken_for_another(sort: str, seed: int) -> None:
    to, output = written(sort, seed)
    graph = to.graph(output)

    found = [other for other, pattern in PATTERNS.items() if match(pattern, graph, len(graph) - 1)]

    assert found == [sort]


def test_gelu_of_two_different_values_is_none() -> None:
    to = Writer(0)
    x, z = to.given("x", (3, 5)), to.given("z", (3, 5))
    erf = to.op("Erf", to.times(x, 1 / math.sqrt(2)))
    graph = to.graph(to.op("Mul", to.times(z, 0.5), to.op("Add", erf, to.constant(1))))

    assert not match(gelu_pattern(), graph, len(graph) - 1)


@pytest.mark.parametrize(
    ("op_type", "attributes", "sort"),
    [
        ("Gelu", {}, "gelu"),
        ("Gelu", {"approximate": "none"}, "gelu"),
        ("Gelu", {"approximate": "tanh"}, "gelu_tanh"),
        ("Swish", {}, "silu"),
        ("Swish", {"alpha": 1.702}, "quick_gelu"),
        ("Swish", {"alpha": 1.5}, None),
    ],
)
def test_operators_are_what_their_attributes_say(op_type: str, attributes: dict[str, object], sort: str | None) -> None:
    to = Writer(0)
    graph = to.graph(to.op(op_type, to.given("x", (3, 5)), **attributes))

    assert [each for each, pattern in PATTERNS.items() if match(pattern, graph, 0)] == [sort] * (sort is not None)


def test_either_gelu_is_meant_unless_told() -> None:
    for sort in ("gelu", "gelu_tanh"):
        to, output = written(sort, 1)
        graph = to.graph(output)

        assert match(gelu_pattern(), graph, len(graph) - 1)


def test_a_plugin_says_what_goes_in() -> None:
    """The operand is one value, however often the formula has it, and is inside if it is an operator."""
    to = Writer(0)
    x = to.op("MatMul", to.given("a", (3, 4)), to.given("b", (4, 5)))
    erf = to.op("Erf", to.times(x, 1 / math.sqrt(2)))
    graph = to.graph(to.product(x, to.op("Add", erf, to.constant(1)), 0.5))

    found = match(gelu_pattern(is_op("MatMul")(wildcard(), wildcard())), graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
