"""Cores to oneself: no two leases have one, and whoever dies gives back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from collage.serve.core_leases import CoreLease, usable_cores
from tests.hardship import with_tests

HOLD = """
import subprocess, sys, time
from collage.serve.core_leases import CoreLease
lease = CoreLease.take(int(sys.argv[2]), sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
print("none" if lease is None else "held", flush=True)
time.sleep(3600)
"""
_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"collage test {os.getpid()} {next(_numbers)} "


def test_each_cpu_that_may_be_used_is_in_one_core() -> None:
    cpus = [cpu for core in usable_cores().values() for cpu in core]

    assert sorted(cpus) == sorted(os.sched_getaffinity(0))


def test_leases_share_no_core(prefix: str) -> None:
    count = len(usable_cores())
    leases = [CoreLease.take(1, prefix) for _ in range(count)]

    assert all(leases)
    assert CoreLease.take(1, prefix) is None
    cpus = [cpu for lease in leases if lease for cpu in lease.cpus]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))
    for lease in leases:
        assert lease is not None
        lease.close()
        lease.close()


def test_too_many_are_not_had_and_none_is_kept(prefix: str) -> None:
    count = len(usable_cores())

    assert CoreLease.take(count + 1, prefix) is None
    every = CoreLease.take(count, prefix)

    assert every is not None
    every.close()


def test_a_process_that_is_killed_gives_back_though_its_children_live(prefix: str) -> None:
    count = len(usable_cores())
    command = [sys.executable, "-P", "-c", HOLD, prefix, str(count)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=with_tests(), start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert CoreLease.take(1, prefix) is None

        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 60
        while (lease := CoreLease.take(count, prefix)) is None:
            assert time.monotonic() < deadline
        os.killpg(process.pid, signal.SIGKILL)
    lease.close()


def test_a_thread_that_is_pinned_has_the_cores_of_its_lease(prefix: str) -> None:
    before = os.sched_getaffinity(0)
    lease = CoreLease.take(1, prefix)
    assert lease is not None
    try:
        lease.pin()
        assert os.sched_getaffinity(0) == lease.cpus
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert {int(cpu) for cpu in child.stdout.split()} == lease.cpus
    finally:
        os.sched_setaffinity(0, before)
        lease.close()
