"""How many copies of weights go past a cache, against a cache of least recent use that is read in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collage_core.errors import DeviceLostError, DeviceMemoryError, PluginError
from collage_core.measure.rotation import MOST_COPIES, copies_needed, rotated
from collage_core.testing import FakeDevice
from collage_core.testing.fake_time import MISS_BYTES_PER_US, FakeTime

MUCH = 1 << 40


def missed(copies: int, weights: int, cache: int, input_bytes: int) -> set[float]:
    """Bytes of weights that each call of the second round finds missing."""
    time = FakeTime(cache_bytes=cache)
    found = set()
    for turn in range(2 * copies):
        began_us = time.clock_us
        time.spend(0.0, 0.0, reads=[(1, input_bytes), (10 + turn % copies, weights)])
        if turn >= copies:
            found.add(round((time.clock_us - began_us) * MISS_BYTES_PER_US))
    return found


@settings(max_examples=60)
@given(weights=st.integers(40, 4000), cache=st.integers(200, 2000), input_bytes=st.integers(1, 100))
def test_every_copy_is_gone_when_its_turn_comes_and_what_is_read_each_time_stays(
    weights: int, cache: int, input_bytes: int
) -> None:
    assume(weights > cache or weights + input_bytes <= cache)  # otherwise the weights push out the input
    copies = copies_needed(weights, cache, MUCH)

    assert missed(copies, weights, cache, input_bytes) == {weights}
    if copies > 2:  # two fewer, and the input, fit
        fewer = copies - 2
        if fewer * weights + input_bytes <= cache:
            assert missed(fewer, weights, cache, input_bytes) == {0}


@given(weights=st.integers(0, 1 << 40), cache=st.integers(0, 1 << 30), free=st.integers(0, 1 << 40))
def test_copies_are_bounded_by_memory_and_number(weights: int, cache: int, free: int) -> None:
    copies = copies_needed(weights, cache, free)

    assert 1 <= copies <= MOST_COPIES
    assert (copies - 1) * weights <= free / 2


def nothing() -> None:
    pass


@pytest.mark.parametrize(("answers", "copies"), [(9, 5), (2, 3), (0, 1)])
@pytest.mark.parametrize("ending", [None, DeviceMemoryError("fake:0", "full"), PluginError("t", "collage_load", "no")])
def test_a_kernel_that_cannot_be_loaded_again_is_timed_on_the_copies_there_are(
    answers: int, copies: int, ending: Exception | None
) -> None:
    made = iter(range(answers))

    def another() -> Callable[[], None] | None:
        if next(made, None) is not None:
            return nothing
        if ending is not None:
            raise ending
        return None

    device = FakeDevice(cache_bytes=4000).open("fake:0")

    assert len(rotated(nothing, another, 1000, device)) == copies


def test_a_device_lost_meanwhile_is_not_passed_over() -> None:
    def another() -> None:
        raise PluginError("t", "collage_load", "it failed") from DeviceLostError("fake:0", "it does not answer")

    with pytest.raises(PluginError):
        rotated(nothing, another, 1000, FakeDevice(cache_bytes=4000).open("fake:0"))
