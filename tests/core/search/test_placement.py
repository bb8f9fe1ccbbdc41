"""Placement against all ways to give operators to targets."""

from __future__ import annotations

import itertools
import random

import pytest

from collage_core.contract.cost import INVALID
from collage_core.errors import NoCoverError
from collage_core.search import CopyTable, SearchProblem, SearchTarget, SharedValue
from collage_core.search.placement import Crossings, place

NAMES = ("a", "b", "c")


def problem(predecessors: list[list[int]], host: int = 0, **excludes: frozenset[str]) -> SearchProblem:
    targets = [SearchTarget(name=n, toolchain=n, excludes=excludes.get(n, frozenset())) for n in NAMES]
    return SearchProblem.from_predecessors(predecessors, targets=targets, candidates=(), host=host)


def values_of(predecessors: list[list[int]], sizes: list[int]) -> list[SharedValue]:
    readers = [0] * len(predecessors)
    for node, sources in enumerate(predecessors):
        for source in sources:
            readers[source] |= 1 << node
    return [SharedValue(producer=n, readers=r, size_bytes=sizes[n]) for n, r in enumerate(readers)]


def total_us(
    placed: dict[str, list[int]],
    times: dict[str, list[float]],
    operators: list[int],
    values: list[SharedValue],
    crossings: Crossings,
) -> float:
    """Add up a placement from the definition: times, and each value once for each other target that reads it."""
    home = {node: name for name, masks in placed.items() for mask in masks for node in range(99) if mask >> node & 1}
    total = sum(times[name][operators.index(mask)] for name, masks in placed.items() for mask in masks)
    for value in values:
        assert value.producer is not None
        readers = {home[node] for node in home if value.readers >> node & 1}
        for name in readers - {home[value.producer]}:
            total += crossings.copy_us(home[value.producer], name, value.size_bytes)
    return total


@pytest.mark.parametrize("seed", range(60))
def test_no_way_to_give_operators_to_targets_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 6)
    predecessors = [sorted(rng.sample(range(n), rng.randint(0, min(n, 2)))) for n in range(count)]
    operators = [1 << node for node in range(count)]
    times = {name: [rng.choice([1.0, 5.0, 20.0, 90.0]) for _ in range(count)] for name in NAMES}
    times["c"][rng.randrange(count)] = INVALID
    values = values_of(predecessors, [rng.choice([0, 10, 1000]) for _ in range(count)])
    crossings = Crossings(value_us=rng.choice([0.0, 3.0]), byte_us=0.01, devices=dict.fromkeys(NAMES, "cpu"))

    placed = place(problem(predecessors), operators, times, values, crossings)

    every = []
    for names in itertools.product(NAMES, repeat=count):
        if all(times[name][at] != INVALID for at, name in enumerate(names)):
            plan = {n: [operators[at] for at in range(count) if names[at] == n] for n in set(names)}
            every.append(total_us(plan, times, operators, values, crossings))
    assert sorted(mask for masks in placed.values() for mask in masks) == operators
    assert total_us(placed, times, operators, values, crossings) == pytest.approx(min(every))


def test_operators_that_stay_together_are_placed_as_one() -> None:
    predecessors: list[list[int]] = [[], [0], [1]]
    crossings = Crossings(value_us=0.0, byte_us=0.0, devices=dict.fromkeys(NAMES, "cpu"))
    times = {"a": [1.0, 9.0], "b": [9.0, 1.0]}

    placed = place(problem(predecessors), [0b011, 0b100], times, values_of(predecessors, [4, 4, 4]), crossings)

    assert placed == {"a": [0b011], "b": [0b100]}


def test_a_value_that_two_readers_share_crosses_once() -> None:
    predecessors: list[list[int]] = [[], [0], [0]]
    crossings = Crossings(value_us=10.0, byte_us=0.0, devices=dict.fromkeys(NAMES, "cpu"))
    times = {"a": [0.0, 8.0, 8.0], "b": [100.0, 1.0, 1.0]}  # 14 are saved for 10; 7 would not be

    placed = place(problem(predecessors), [1, 2, 4], times, values_of(predecessors, [4, 4, 4]), crossings)

    assert placed == {"a": [1], "b": [2, 4]}


def test_targets_on_devices_pay_for_copies_between_them() -> None:
    predecessors: list[list[int]] = [[], [0]]
    devices = {"a": "cpu", "b": "cuda:0", "c": "cpu"}
    times = {"a": [1.0, 50.0], "b": [50.0, 1.0], "c": [50.0, 20.0]}
    copies = CopyTable({("cpu", "cuda:0"): 30.0})

    def placed(copies: CopyTable) -> dict[str, list[int]]:
        crossings = Crossings(value_us=1.0, byte_us=0.0, devices=devices, copies=copies)
        return place(problem(predecessors), [1, 2], times, values_of(predecessors, [4, 4]), crossings)

    assert placed(copies) == {"a": [1], "c": [2]}
    assert placed(CopyTable({("cpu", "cuda:0"): 3.0})) == {"a": [1], "b": [2]}


def test_targets_that_exclude_each_other_share_no_placement() -> None:
    predecessors: list[list[int]] = [[], [0]]
    crossings = Crossings(value_us=0.0, byte_us=0.0, devices=dict.fromkeys(NAMES, "cpu"))
    times = {"a": [1.0, 9.0], "b": [9.0, 1.0], "c": [8.0, 8.0]}
    apart = problem(predecessors, a=frozenset({"b"}))

    placed = place(apart, [1, 2], times, values_of(predecessors, [4, 4]), crossings)

    assert placed == {"a": [1], "c": [2]} or placed == {"b": [2], "c": [1]}


def test_an_operator_that_nobody_runs_is_an_error() -> None:
    crossings = Crossings(value_us=0.0, byte_us=0.0, devices=dict.fromkeys(NAMES, "cpu"))

    with pytest.raises(NoCoverError):
        place(problem([[], [0]]), [1, 2], {"a": [1.0, INVALID]}, values_of([[], [0]], [4, 4]), crossings)
