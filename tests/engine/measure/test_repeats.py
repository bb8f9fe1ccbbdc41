"""How far one cost may be off, against what made-up machines do next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from collage.measure.driver.repeats import LEAST, Repeats, note_repeat, repeats_of
from collage.store import MemoryStore
from tests.engine.store.test_records import KEY

KERNELS = 400
TIMES = 21

MACHINES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "calm": lambda rng, shape: np.exp(0.01 * rng.normal(size=shape)),
    "shaken": lambda rng, shape: np.exp(0.15 * rng.standard_t(4, size=shape)),
    "of two speeds": lambda rng, shape: (1.0 + 0.5 * (rng.random(shape) < 0.3)) * np.exp(0.02 * rng.normal(size=shape)),
    "disturbed now and then": lambda rng, shape: 1.0 + 0.01 * rng.random(shape) + (rng.random(shape) < 0.05),
}


def repeated(costs_us: Sequence[float]) -> Repeats:
    """Compare each measurement of one kernel with the one before."""
    found = Repeats()
    for before_us, after_us in itertools.pairwise(costs_us):
        found = found.adding(before_us, after_us)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_most_intervals_contain_the_long_run_cost(machine: str) -> None:
    rng = np.random.default_rng(5)
    usual = 10 ** rng.uniform(1, 4, size=(KERNELS, 1))
    costs = usual * MACHINES[machine](rng, (KERNELS, TIMES))
    known = Repeats()
    for first, second in costs[:50, :2]:
        known = known.adding(first, second)

    long_run = np.median(costs, axis=1)
    found = [known.interval(float(cost)) for cost in costs[50:, 2]]

    both = zip(found, long_run[50:], strict=True)
    inside = [each is not None and each[0] <= usual <= each[1] for each, usual in both]
    assert np.mean(inside) >= 0.85


def test_an_interval_is_no_wider_than_repeating_says() -> None:
    rng = np.random.default_rng(6)
    known = Repeats()
    for first, second in np.exp(0.01 * rng.normal(size=(300, 2))):
        known = known.adding(first, second)

    found = known.interval(100.0)

    assert found is not None
    # two normal errors of 1 % are 1.41 % apart, of which 95 % are below 1.96 of these
    assert math.log(found[1] / 100.0) == pytest.approx(1.96 * math.sqrt(2) * 0.01, rel=0.2)
    assert math.log(100.0 / found[0]) == pytest.approx(math.log(found[1] / 100.0))


def test_a_few_repeats_say_nothing() -> None:
    assert repeated([1.0] * LEAST).interval(5.0) is None
    found = repeated([1.0] * (LEAST + 1)).interval(5.0)
    assert found is not None
    assert found == (5.0, 5.0)


def test_a_change_is_the_same_in_both_directions_and_the_latest_are_kept() -> None:
    assert repeated([2.0, 3.0, 2.0]).changes == pytest.approx([math.log(1.5)] * 2)

    long = repeated([1.0 + number / 1000 for number in range(600)])

    assert len(long.changes) == 400
    assert long.changes[-1] == pytest.approx(math.log(1.599 / 1.598))


@pytest.mark.parametrize("costs_us", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)], ids=str)
def test_what_a_coarse_clock_does_not_see_teaches_nothing(costs_us: tuple[float, float]) -> None:
    database = MemoryStore()

    note_repeat(database, KEY, *costs_us)
    assert repeats_of(database, KEY) == Repeats()
    note_repeat(database, KEY, 1.0, 1.5)
    assert repeats_of(database, KEY) == Repeats(changes=(math.log(1.5),))
