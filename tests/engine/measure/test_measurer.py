"""Work side by side: as wide as it may be, nothing lost, nothing begun too early."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.measure.driver.measurer import side_by_side


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_each_item_is_worked_on_once(items: list[int], width: int) -> None:
    done = list(side_by_side(items, lambda item: item + 1, width))

    assert sorted(done) == sorted((item, item + 1) for item in items)


@given(st.integers(1, 5))
def test_no_more_are_worked_on_than_it_is_wide_and_the_next_is_taken_when_there_is_room(width: int) -> None:
    lock, now, most = threading.Lock(), 0, 0
    taken = yielded = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(12):
            assert taken - yielded < width
            taken += 1
            yield item

    def work(item: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        with lock:
            now -= 1
        return item

    for _ in side_by_side(items(), work, width):
        yielded += 1

    assert yielded == 12
    assert most <= width


def test_as_many_run_at_once_as_it_is_wide() -> None:
    together = threading.Barrier(3, timeout=60)

    def work(item: int) -> int:
        together.wait()
        return item

    assert sorted(item for item, _ in side_by_side(range(6), work, 3)) == list(range(6))


@pytest.mark.parametrize("width", [1, 3])
def test_what_goes_wrong_ends_it(width: int) -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    def work(item: int) -> int:
        if item == 2:
            raise ValueError("two")
        return item

    with pytest.raises(ValueError, match="two"):
        list(side_by_side(items(), work, width))

    assert len(taken) <= 2 + 2 * width
