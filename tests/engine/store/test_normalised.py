"""Samples at the machine's usual speed."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.store import MachineSpeed, MemoryStore, block_times_us
from collage_core.contract import Block

TIMES = st.floats(min_value=1.0, max_value=1e6)


@given(st.lists(st.tuples(st.lists(TIMES, min_size=1, max_size=5), TIMES), min_size=1, max_size=6), TIMES)
def test_blocks_count_by_their_medians_and_share_the_measurements_speed(
    taken: list[tuple[list[float], float]], usual_us: float
) -> None:
    samples_us = list(itertools.chain.from_iterable(samples for samples, _ in taken))
    blocks = [Block(samples=len(samples), calibration_us=beside) for samples, beside in taken]
    speed = math.sqrt(usual_us / statistics.median(beside for _, beside in taken))

    assert block_times_us(samples_us, blocks, usual_us) == pytest.approx(
        [statistics.median(samples) * speed for samples, _ in taken]
    )
    by_most = [max(samples) for samples, _ in taken]
    assert block_times_us(samples_us, blocks, None, max) == by_most
    assert block_times_us(samples_us, blocks, None) == [statistics.median(samples) for samples, _ in taken]


@given(st.lists(TIMES, min_size=1), TIMES)
def test_without_blocks_samples_are_what_they_are(samples_us: list[float], usual_us: float) -> None:
    assert block_times_us(samples_us, (), usual_us) == samples_us


@given(st.lists(TIMES, min_size=1, max_size=8), st.floats(min_value=0.25, max_value=4.0))
def test_kernels_slow_down_by_the_root_of_what_the_calibration_does(samples_us: list[float], slower: float) -> None:
    def cost(factor: float) -> float:
        blocks = [Block(samples=1, calibration_us=100.0 * factor**2) for _ in samples_us]
        return statistics.median(block_times_us([each * factor for each in samples_us], blocks, 100.0))

    assert cost(slower) == pytest.approx(cost(1.0))


def test_the_usual_speed_is_that_of_the_calmer_blocks_and_is_kept() -> None:
    blocks = [Block(samples=1, calibration_us=us) for us in (300.0, 100.0, 110.0, 120.0, 900.0)]
    speed, store = MachineSpeed.of(blocks), MemoryStore()

    store.put_document(MachineSpeed.name("a machine", 2), speed)

    assert speed.calibration_us == 110.0
    assert store.get_document(MachineSpeed, MachineSpeed.name("a machine", 2)) == speed
    assert store.get_document(MachineSpeed, MachineSpeed.name("a machine", 1)) is None


@pytest.mark.parametrize("calibration_us", [0.0, -1.0, float("inf"), float("nan")])
def test_a_speed_is_a_time(calibration_us: float) -> None:
    with pytest.raises(ValueError, match="no time"):
        MachineSpeed(calibration_us=calibration_us)
