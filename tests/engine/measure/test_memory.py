"""How much memory a process holds, and how much the machine and its control groups leave it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from collage.measure.driver import memory

pytestmark = pytest.mark.guards("a worker's memory grows without bound")

MIB = 1 << 20
Groups = Callable[..., None]


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Makes files of control groups, by path."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    known = memory._lines

    def make(lines: str, **files: str) -> None:
        (tmp_path / "own").write_text(lines, encoding="ascii")
        monkeypatch.setattr(
            memory, "_lines", lambda path: known(tmp_path / "own" if path == Path("/proc/self/cgroup") else path)
        )
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_0_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="ascii")

    return make


def test_a_group_of_version_2_leaves_what_it_has_not_used(groups: Groups) -> None:
    groups(
        "0::/apps/one\n",
        apps__memory_0_max=f"{300 * MIB}\n",
        apps__memory_0_current=f"{100 * MIB}\n",
        apps__one__memory_0_max="max\n",
        apps__one__memory_0_current=f"{50 * MIB}\n",
    )

    assert memory._free_in_group() == 200 * MIB


def test_page_cache_of_a_group_is_not_used_up(groups: Groups) -> None:
    groups(
        "0::/\n",
        memory_0_max=f"{300 * MIB}",
        memory_0_current=f"{280 * MIB}",
        memory_0_stat=f"anon 5\ninactive_file {180 * MIB}\n",
    )

    assert memory._free_in_group() == 200 * MIB
    assert memory.limit_bytes() <= 160 * MIB


def test_a_group_of_version_1_is_understood_and_one_without_limit_is_none(groups: Groups) -> None:
    groups(
        "4:cpu,memory:/machine/of/the/host\n0::/\n",
        memory__memory_0_limit_in_bytes=f"{64 * MIB}",
        memory__memory_0_usage_in_bytes=f"{4 * MIB}",
    )
    assert memory._free_in_group() == 60 * MIB

    groups(
        "4:memory:/\n",
        memory__memory_0_limit_in_bytes="9223372036854771712",
        memory__memory_0_usage_in_bytes="5",
    )
    assert memory.limit_bytes() == pytest.approx(memory.SHARE * psutil.virtual_memory().available, rel=0.2)


def test_a_limit_is_positive_and_below_what_there_is() -> None:
    assert 0 < memory.limit_bytes() < psutil.virtual_memory().total


def test_memory_of_a_process_grows_with_what_it_holds_and_ends_with_it() -> None:
    program = "import sys; held = b'x' * (100 << 20) if sys.argv[1] == 'much' else b''; print(1, flush=True); input()"
    held = []
    for much in ("little", "much"):
        command = [sys.executable, "-c", program, much]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            held.append(memory.private_bytes(process.pid))
            process.kill()

    assert held[1] - held[0] == pytest.approx(100 * MIB, rel=0.1)
    assert memory.private_bytes(process.pid) == 0
    assert memory.private_bytes(os.getpid()) > 0


@pytest.mark.guards("processes that a worker started (compilers, linkers) take the memory")
def test_what_a_process_started_counts_with_it_and_what_a_fork_shares_counts_once() -> None:
    program = """
import os, sys, time
held = b"x" * (100 << 20)
if os.fork() == 0:  # shares what is held
    if os.fork() == 0:
        more = b"y" * (60 << 20)
        print(1, flush=True)
    time.sleep(600)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            held = memory.family_bytes(process.pid)
            alone = memory.private_bytes(process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)

    assert alone == pytest.approx(106 * MIB, rel=0.1)
    assert held == pytest.approx(170 * MIB, rel=0.1)
    assert memory.family_bytes(process.pid) == 0


@pytest.mark.parametrize(("text", "count"), [("pgfault 1\noom_kill 3\n", 3), ("pgfault 1\n", None), (None, None)])
def test_what_linux_killed_for_memory_is_counted(
    text: str | None, count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "vmstat").write_text(text, encoding="ascii")
    monkeypatch.setattr(memory, "_VMSTAT", tmp_path / "vmstat")

    assert memory.kernel_kills() == count
