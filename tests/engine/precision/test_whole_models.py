"""How many groups of products are quantised: errors made up, against all numbers of groups."""

from __future__ import annotations

import math
import random

import pytest

from collage.precision.whole_models import WholeModel, next_count

ATTEMPTS = 5


def tried_out(rounded: list[float], eight: list[float], factors: tuple[float, float], bound: float) -> list[WholeModel]:
    """Try forms as `WholeModels.quantised` does, where roundings turn out to do more or less than was expected."""

    def square(count: int, factors: tuple[float, float]) -> float:
        return factors[0] * sum(rounded[count:]) + factors[1] * sum(eight[:count])

    tried: dict[int, WholeModel] = {}
    factor = 1.0
    for _ in range(ATTEMPTS):
        count = next_count([factor * square(n, (1, 1)) for n in range(len(eight) + 1)], bound, tried)
        if count in tried or count < 0:
            break
        error = math.sqrt(square(count, factors))
        tried[count] = WholeModel(cost_us=100.0 - count, error=error, kept=error <= bound)
        factor = error**2 / square(count, (1, 1))
        if tried[count].kept and (error >= 0.8 * bound or count == len(eight)):
            break
    return list(tried.values())


@pytest.mark.parametrize("spread", [1.0, 2.0, 4.0])
def test_the_bound_is_nearly_used_up_in_a_few_attempts(spread: float) -> None:
    rng, lost, found_any = random.Random(7), 0, 0
    for _ in range(300):
        count = rng.randint(1, 74)
        rounded = [10 ** rng.uniform(-2, 0) for _ in range(count)]
        eight = sorted(each + 10 ** rng.uniform(-2, 1.5) for each in rounded)
        factors = (rng.uniform(1 / spread, spread), rng.uniform(1 / spread, spread))
        bound = math.sqrt(rng.uniform(0.5, 1.2) * sum(eight))
        possible = [
            number
            for number in range(count + 1)
            if factors[0] * sum(rounded[number:]) + factors[1] * sum(eight[:number]) <= bound**2
        ]

        kept = [each for each in tried_out(rounded, eight, factors, bound) if each.kept]

        assert all(each.error <= bound for each in kept)
        if possible:
            found_any += 1
            best = max(possible)
            most = max((100 - each.cost_us for each in kept), default=-1)
            enough = any(each.error >= 0.8 * bound for each in kept)
            lost += not enough and most < best - max(1, count // 20)
    assert found_any > 100
    assert lost <= 0.05 * found_any


def test_a_form_that_cannot_run_is_not_interpolated() -> None:
    tried = {
        5: WholeModel(cost_us=1.0, error=math.inf, kept=False),
        1: WholeModel(cost_us=1.0, error=0.5, kept=True),
    }

    assert next_count([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], 1.0, tried) == 2


def test_there_is_nothing_between_two_neighbours() -> None:
    tried = {
        3: WholeModel(cost_us=1.0, error=1.5, kept=False),
        2: WholeModel(cost_us=1.0, error=0.5, kept=True),
    }

    assert next_count([0.0, 0.1, 0.2, 0.3], 1.0, tried) in tried


def test_not_even_the_rest_keeps_to_the_bound() -> None:
    assert next_count([2.0, 3.0], 1.0, {}) == -1
    assert next_count([0.5, 3.0], 1.0, {0: WholeModel(cost_us=1.0, error=2.0, kept=False)}) == -1
