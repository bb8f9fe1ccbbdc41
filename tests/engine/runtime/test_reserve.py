"""Memory that executables of several sizes share."""

from __future__ import annotations

from typing import Any

import numpy as np

from collage.runtime.places import Reserve


def test_sizes_that_grow_take_three_times_the_largest_at_most() -> None:
    taken: list[int] = []

    def make(nbytes: int) -> np.ndarray[Any, Any]:
        taken.append(nbytes)
        return np.empty(nbytes, np.uint8)

    reserve = Reserve()
    sizes = range(1_000, 60_000, 7)
    kept = [reserve.take("arena", size, make) for size in sizes]

    assert [len(each) for each in kept] == list(sizes)
    assert sum(taken) <= 3 * 1.5 * sizes[-1]
    assert len(taken) < 20


def test_the_first_gets_what_it_asks_for_and_a_smaller_one_shares_it() -> None:
    reserve = Reserve()
    first, second, other = reserve.take("a", 100), reserve.take("a", 60), reserve.take("b", 60)

    assert np.shares_memory(first, second)
    assert not np.shares_memory(first, other)
