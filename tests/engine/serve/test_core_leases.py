"""Cores to oneself: no two leases have one, and whoever dies gives back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collage.serve.core_leases import CoreLease, usable_cores
from tests.hardship import with_tests

HOLD = """
import sys, time
from pathlib import Path
from collage.serve.core_leases import CoreLease
lease = CoreLease.take(int(sys.argv[2]), Path(sys.argv[1]))
print("none" if lease is None else "held", flush=True)
time.sleep(3600)
"""


def holding(folder: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-c", HOLD, str(folder), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_tests())


def test_each_cpu_that_may_be_used_is_in_one_core() -> None:
    cpus = [cpu for core in usable_cores() for cpu in core]

    assert sorted(cpus) == sorted(os.sched_getaffinity(0))


def test_leases_share_no_core(tmp_path: Path) -> None:
    count = len(usable_cores())
    leases = [CoreLease.take(1, tmp_path) for _ in range(count)]

    assert all(leases)
    assert CoreLease.take(1, tmp_path) is None
    cpus = [cpu for lease in leases if lease for cpu in lease.cpus]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))
    for lease in leases:
        assert lease is not None
        lease.close()
        lease.close()


def test_too_many_are_not_had_and_none_is_kept(tmp_path: Path) -> None:
    count = len(usable_cores())

    assert CoreLease.take(count + 1, tmp_path) is None
    every = CoreLease.take(count, tmp_path)

    assert every is not None
    every.close()


def test_a_process_that_is_killed_gives_back(tmp_path: Path) -> None:
    count = len(usable_cores())
    process = holding(tmp_path, count)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert CoreLease.take(1, tmp_path) is None

    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()

    deadline = time.monotonic() + 60
    while (lease := CoreLease.take(count, tmp_path)) is None:
        assert time.monotonic() < deadline
    lease.close()


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / f"core-{usable_cores()[0][0]}").symlink_to(elsewhere)

    with pytest.raises(OSError, match="symbolic links"):
        CoreLease.take(1, tmp_path / "locks")

    assert not elsewhere.exists()
