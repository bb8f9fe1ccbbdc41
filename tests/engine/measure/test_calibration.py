"""The calibration kernel."""

from __future__ import annotations

import threading

import pytest

from collage.measure.clocks.calibration import Calibration


@pytest.mark.parametrize("threads", [1, 3])
def test_it_takes_time_on_every_thread_and_the_threads_stay(threads: int) -> None:
    before = threading.active_count()
    calibrate = Calibration(threads)

    first, second = calibrate(), calibrate()

    assert first > 0
    assert second > 0
    assert threading.active_count() - before <= threads - 1
