"""Which lease a job has, without Ray."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract import RunnerHost
from collage_ray.leases import Leased, Leases


def made() -> Callable[[], int]:
    numbers = itertools.count()
    return lambda: next(numbers)


def host(cores: int, devices: int = 0, at_once: int = 99) -> RunnerHost:
    return RunnerHost(name="a", cores=cores, devices=devices, at_once=at_once)


def taken(leases: Leases[int], where: RunnerHost, cores: int, devices: int, make: Callable[[], int]) -> Leased[int]:
    found = leases.take(where, cores, devices, make)
    assert found is not None
    return found


def test_a_lease_is_kept_for_the_next_job_like_it() -> None:
    ended: list[int] = []
    leases, make = Leases[int](ended.append), made()

    first = taken(leases, host(2), 1, 0, make)
    second = taken(leases, host(2), 1, 0, make)
    leases.give_back(first)
    third = taken(leases, host(2), 1, 0, make)

    assert (first.lease, second.lease, third.lease) == (0, 1, 0)
    assert ended == []


def test_an_idle_lease_gives_way_to_a_job_that_needs_what_it_has() -> None:
    ended: list[int] = []
    leases, make = Leases[int](ended.append), made()

    leases.give_back(taken(leases, host(2), 1, 0, make))
    whole = taken(leases, host(2), 2, 0, make)

    assert whole.lease == 1
    assert ended == [0]


def test_jobs_that_wait_are_served_as_leases_come_back() -> None:
    leases, make = Leases[int](lambda _: None), made()
    order = []

    def job(number: int) -> None:
        leased = taken(leases, host(2), 2, 0, make)
        order.append(number)
        leases.give_back(leased)

    first = taken(leases, host(2), 2, 0, make)
    with ThreadPoolExecutor(3) as threads:
        jobs = [threads.submit(job, number) for number in range(3)]
        leases.give_back(first)
        for each in jobs:
            each.result(60)

    assert sorted(order) == [0, 1, 2]
    assert make() == 1  # one lease served all


@pytest.mark.parametrize("wanted", [(3, 0), (1, 2)])
def test_more_than_a_machine_has_is_not_had(wanted: tuple[int, int]) -> None:
    assert Leases[int](lambda _: None).take(host(2, 1), *wanted, made()) is None


def test_whoever_waits_when_it_is_closed_has_none() -> None:
    ended: list[int] = []
    leases, make = Leases[int](ended.append), made()
    taken(leases, host(1), 1, 0, make)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(leases.take, host(1), 1, 0, make)
        leases.close()

        assert waiting.result(60) is None
    assert ended == [0]
    assert leases.take(host(1), 1, 0, make) is None


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=12), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_jobs_never_have_more_than_the_machine_and_all_end(jobs: list[tuple[int, int]], at_once: int) -> None:
    where = host(4, 2, at_once)
    leases, make = Leases[int](lambda _: None), made()
    lock, now = threading.Lock(), [0, 0, 0]

    def job(cores: int, devices: int) -> None:
        leased = taken(leases, where, cores, devices, make)
        with lock:
            for place, more in enumerate((cores, devices, 1)):
                now[place] += more
            assert now[0] <= 4
            assert now[1] <= 2
            assert now[2] <= at_once
        with lock:
            for place, more in enumerate((cores, devices, 1)):
                now[place] -= more
        leases.give_back(leased)

    with ThreadPoolExecutor(len(jobs)) as threads:
        for each in [threads.submit(job, *wanted) for wanted in jobs]:
            each.result(60)
