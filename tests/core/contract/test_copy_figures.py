"""The line through measured copies, against an exhaustive look at lines nearby."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_core.contract import CopyFigures

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
NOISE = st.lists(st.floats(0.3, 3.0), min_size=4, max_size=4)


def relative_squares(points: list[tuple[int, float]], latency_us: float, us_per_byte: float) -> float:
    return sum(((latency_us + us_per_byte * size - us) / us) ** 2 for size, us in points)


@given(latency_us=st.floats(0.01, 100.0), bytes_per_us=st.floats(10.0, 5e6))
def test_times_that_lie_on_a_line_give_that_line(latency_us: float, bytes_per_us: float) -> None:
    found = CopyFigures.fitted([(size, latency_us + size / bytes_per_us) for size in SIZES])

    assert [found.copy_us(size) for size in SIZES] == pytest.approx(
        [latency_us + size / bytes_per_us for size in SIZES], rel=1e-4
    )


@given(latency_us=st.floats(0.1, 50.0), bytes_per_us=st.floats(100.0, 1e5), noise=NOISE)
def test_no_line_nearby_is_closer_to_times_with_noise(
    latency_us: float, bytes_per_us: float, noise: list[float]
) -> None:
    points = [(size, factor * (latency_us + size / bytes_per_us)) for size, factor in zip(SIZES, noise, strict=True)]

    found = CopyFigures.fitted(points)

    least = relative_squares(points, found.latency_us, 1 / found.bytes_per_us)
    steps = [0.0, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0]
    for a, b in itertools.product(steps, steps):
        assert relative_squares(points, a * found.latency_us, b / found.bytes_per_us) >= least - 1e-6
    for a, b in itertools.product([0.0, 0.1, 1.0, 10.0], [0.0, 1e-5, 1e-3, 1e-1]):
        assert relative_squares(points, a, b) >= least - 1e-6


def test_noise_of_a_large_copy_does_not_decide_about_the_latency() -> None:
    exact = [(size, 8.0 + size / 12_000.0) for size in SIZES]
    off = [*exact[:-1], (SIZES[-1], exact[-1][1] * 1.02)]  # 28 us more

    assert CopyFigures.fitted(off).latency_us == pytest.approx(8.0, rel=0.02)


def test_times_that_do_not_grow_are_all_latency_and_times_through_the_origin_have_none() -> None:
    flat = CopyFigures.fitted([(100, 4.0), (1000, 4.0), (10_000, 3.0)])
    steep = CopyFigures.fitted([(100, 1.0), (1000, 20.0), (10_000, 300.0)])

    assert flat.latency_us == pytest.approx(3.6, abs=0.1)
    assert flat.bytes_per_us >= 1e9
    assert steep.latency_us == 0.0
    assert math.isfinite(steep.copy_us(1 << 40))


@pytest.mark.parametrize(
    "points", [[], [(1, 1.0)], [(1, 1.0), (1, 2.0)], [(1, math.inf), (2, 1.0)], [(1, -1.0), (2, 1.0)]]
)
def test_what_no_line_goes_through_is_refused(points: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="at least two sizes"):
        CopyFigures.fitted(points)
