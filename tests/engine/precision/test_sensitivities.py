"""What kernels are expected to do to the outputs, against sums by hand and all subsets."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.precision.sensitivity.groups import (
    MOST_GROUPS,
    MOST_ROUNDED,
    bound_by_weights,
    product_groups,
    rounded_together,
    shared_out,
)
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage_core.contract import Target
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Range, SymmetricRange
from collage_testing import GraphBuilder
from tests.engine.precision.chains import BF16, BOTH, FP16, INT8, INT8_WEIGHTS, PLAIN, chain, sensitivities
from tests.precision_counts import most_within

WHOLE = 0b1111
ERRORS = st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=4)


def square(found: Sensitivities, target: Target, *chosen: int, nodes: int = WHOLE) -> float:
    return found.square(found.quantised(chain(4), nodes, target, chosen))


def test_errors_add_up_in_squares() -> None:
    found = sensitivities([3.0, 4.0, 12.0, 84.0], [1.0, 2.0, 2.0, 4.0])

    assert square(found, PLAIN) == 0.0
    assert square(found, INT8) == 0.0
    assert square(found, INT8, 0, 1) == 25.0
    assert square(found, INT8, 0, 1, 2, 3) == 85.0**2
    assert square(found, BF16) == 25.0
    assert square(found, BOTH, 0) == 9.0 + 4.0 + 4.0 + 16.0
    assert square(found, FP16) == 25.0 / 64, "its significand has three bits more"
    assert square(found, BOTH, 0, 3, nodes=0b0011) == 9.0 + 4.0, "what is outside the kernel is not its error"


def test_a_target_of_weights_alone_quantises_the_groups_whose_weights_were_looked_at() -> None:
    found = dataclasses.replace(sensitivities([3.0, 4.0, 12.0, 84.0]), weights={1: 2.0, 3: 1.0})

    kernel = found.quantised(chain(4), WHOLE, INT8_WEIGHTS, range(4))

    assert [(each.node, each.span) for each in kernel.sub_graph.int8] == [(1, None), (3, None)]
    assert found.square(kernel) == 5.0, "the error of the weights, not of both operands"
    assert found.by_price(INT8_WEIGHTS) == [3, 1]
    assert found.by_price(INT8) == [0, 1, 2, 3]
    assert most_within(found, chain(4), WHOLE, INT8_WEIGHTS, 1.5) == 1


@pytest.mark.parametrize(
    ("rows", "wide", "found"),
    [(1, 1024, [0]), (4, 1024, [0]), (5, 1024, []), (1, 64, [])],
)
def test_a_group_of_few_rows_and_a_large_weight_is_bound_by_its_weight(rows: int, wide: int, found: list[int]) -> None:
    g = GraphBuilder("two")
    inner = g.op("MatMul", g.input("x", rows, 512), g.weight("large", 512, wide))
    graph = DataflowGraph(g.model(g.op("MatMul", inner, g.weight("small", wide, 8))))
    groups = product_groups(graph, {0: Range(-1.0, 1.0), 1: Range(-1.0, 1.0)})

    assert bound_by_weights(graph, groups) == found


def test_groups_of_few_rows_that_are_the_smaller_part_of_all_weights_are_none() -> None:
    g = GraphBuilder("tail")
    many = g.op("MatMul", g.input("x", 64, 512), g.weight("body", 512, 1024))
    first = g.op("Slice", many, *(g.constant(name, np.array([n])) for name, n in (("from", 0), ("to", 1), ("of", 0))))
    head = g.op("MatMul", first, g.weight("head", 1024, 256))
    graph = DataflowGraph(g.model(head))
    spans = {index: Range(-1.0, 1.0) for index, node in enumerate(graph.nodes) if node.op_type == "MatMul"}

    assert len(spans) == 2
    assert bound_by_weights(graph, product_groups(graph, spans)) == []


def test_what_a_kernel_turned_out_to_do_corrects_its_target_only() -> None:
    found = sensitivities([3.0, 4.0, 0.0, 0.0])
    before = square(found, BOTH, 0)

    learnt = found.learning(found.quantised(chain(4), WHOLE, INT8, [0, 1]), 10.0)

    assert square(learnt, INT8, 0) == pytest.approx(36.0)
    assert square(learnt, BOTH, 0) == before
    again = learnt.learning(learnt.quantised(chain(4), WHOLE, INT8, [0]), 3.0)
    assert square(again, INT8, 0) == pytest.approx(9.0)
    for nothing in (0.0, math.inf, math.nan):
        assert found.learning(found.quantised(chain(4), WHOLE, INT8, [0]), nothing) is found


def test_a_target_that_knows_no_zero_points_gets_symmetric_ranges() -> None:
    symmetric = dataclasses.replace(INT8, symmetric=True)
    found = sensitivities([3.0, 4.0, 0.0, 0.0])

    one, other = (found.quantised(chain(4), WHOLE, target, [0, 1]) for target in (INT8, symmetric))

    assert {type(each.span) for each in one.sub_graph.int8} == {Range}
    assert {type(each.span) for each in other.sub_graph.int8} == {SymmetricRange}
    assert [each.node for each in other.sub_graph.int8] == [each.node for each in one.sub_graph.int8]
    assert found.square(other) == found.square(one)


@given(ERRORS, st.lists(st.floats(1.0, 100.0), min_size=4, max_size=4), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_no_subset_of_less_error_saves_more_than_one_by_price(
    errors: list[float], flops: list[float], bound: float
) -> None:
    found = sensitivities(errors, flops=flops)

    count = most_within(found, chain(4), WHOLE, INT8, bound)

    chosen = found.by_price(INT8)[:count]
    used = square(found, INT8, *chosen)
    assert used <= bound**2
    saved = sum(flops[number] for number in chosen)
    subsets = itertools.chain.from_iterable(itertools.combinations(range(4), size) for size in range(5))
    assert all(
        sum(flops[number] for number in each) <= saved * (1 + 1e-9)
        for each in subsets
        if square(found, INT8, *each) <= used
    )


def test_where_not_even_the_rest_keeps_to_the_bound_nothing_can_be_quantised() -> None:
    found = sensitivities([8.0] * 4, [1.0] * 4)

    assert most_within(found, chain(4), WHOLE, BOTH, 1.9) == -1
    assert most_within(found, chain(4), WHOLE, BOTH, 2.0) == 0


@pytest.mark.parametrize("count", [1, 7, MOST_GROUPS, MOST_GROUPS + 1, 3 * MOST_GROUPS - 1])
def test_groups_hold_all_products_once_in_order(count: int) -> None:
    groups = product_groups(chain(count), {number: Range(-1.0, 1.0) for number in range(count)})

    assert [each.node for group in groups for each in group.products] == list(range(count))
    assert len(groups) == min(count, MOST_GROUPS)
    sizes = [len(group.products) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert sum(group.flops for group in groups) == count * 2 * 64**3


@given(st.integers(1, 3 * MOST_GROUPS), st.booleans(), st.data())
@settings(max_examples=30, deadline=None)
def test_groups_that_are_rounded_together_share_their_error_as_products_in_8_bits_or_equally(
    count: int, known: bool, data: st.DataObject
) -> None:
    groups = product_groups(chain(count), {number: Range(-1.0, 1.0) for number in range(count)})
    together = rounded_together(groups)
    errors = data.draw(st.lists(st.floats(1e-6, 1.0), min_size=len(together), max_size=len(together)))
    each = st.floats(1e-6, 1.0) if known else st.just(0.0)
    int8 = data.draw(st.lists(each, min_size=len(groups), max_size=len(groups)))

    found = shared_out(groups, together, errors, int8)

    assert len(together) == min(len(groups), MOST_ROUNDED)
    assert sum(together) == (1 << len(groups)) - 1, "each group is in one"
    assert len(found) == len(groups)
    for mask, error in zip(together, errors, strict=True):
        inside = [number for number in range(len(groups)) if mask >> number & 1]
        assert math.hypot(*(found[number] for number in inside)) == pytest.approx(error)
        sizes = [len(groups[number].products) for number in inside]
        squares = [found[number] ** 2 / size for number, size in zip(inside, sizes, strict=True)]
        ours = [int8[number] / math.sqrt(size) if known else 1.0 for number, size in zip(inside, sizes, strict=True)]
        ratios = [square / mine for square, mine in zip(squares, ours, strict=True)]
        assert max(ratios) == pytest.approx(min(ratios))
