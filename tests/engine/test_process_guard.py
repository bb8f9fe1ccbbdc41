"""What a plugin's code changes of a process is undone after each call; the command's tests have more kinds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collage.errors import PluginWarning
from collage.process_guard import ProcessGuard
from collage_core.errors import ProcessDamagedError
from tests.hardship import with_tests


def within(call: Callable[[], object], guard: ProcessGuard | None = None) -> str:
    """Call within a guard and return what was said, at most one line."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with (guard or ProcessGuard())("mock", "import"):
            call()
    assert {each.category for each in said} <= {PluginWarning}
    [text] = [str(each.message) for each in said] or [""]
    return text


def test_what_is_left_alone_is_not_spoken_of() -> None:
    assert within(lambda: None) == ""


def test_several_changes_are_one_line(tmp_path: Path) -> None:
    before = Path.cwd()

    def changes() -> None:
        os.chdir(tmp_path)
        np.seterr(all="raise")

    assert within(changes) == (
        "toolchain 'mock' changed the working directory, NumPy's error handling of this process in import; "
        "that was undone"
    )
    assert Path.cwd() == before


def test_a_change_is_told_once_and_undone_each_time(tmp_path: Path) -> None:
    guard, before = ProcessGuard(), Path.cwd()

    told = [within(lambda: os.chdir(tmp_path), guard) for _ in range(3)]

    assert [bool(each) for each in told] == [True, False, False]
    assert Path.cwd() == before


def test_it_is_undone_if_the_code_raises(tmp_path: Path) -> None:
    before = Path.cwd()

    def changes_and_raises() -> None:
        os.chdir(tmp_path)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ProcessGuard()("mock", "import"):
        changes_and_raises()

    assert Path.cwd() == before


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is nothing to choose from")
def test_the_cpus_of_a_process_are_its_own() -> None:
    before = os.sched_getaffinity(0)

    assert "the CPU affinity" in within(lambda: os.sched_setaffinity(0, {min(before)}))

    assert os.sched_getaffinity(0) == before


def test_names_that_are_added_stay() -> None:
    import builtins

    try:
        assert within(lambda: setattr(builtins, "_of_gettext", str)) == ""
        assert builtins._of_gettext is str  # type: ignore[attr-defined]
    finally:
        del builtins._of_gettext  # type: ignore[attr-defined]


def test_a_thread_that_ends_with_python_is_no_matter() -> None:
    done = threading.Event()

    assert within(lambda: threading.Thread(target=done.wait, daemon=True).start()) == ""
    done.set()


def test_a_guard_keeps_no_file_open() -> None:
    guard = ProcessGuard()
    gc.collect()  # what other tests left open would close in between
    before = set(os.listdir("/proc/self/fd"))

    for _ in range(3):
        within(lambda: os.chdir("/"), guard)

    assert set(os.listdir("/proc/self/fd")) <= before


CLOSES = """
import os
from collage.process_guard import ProcessGuard
from collage_core.errors import ProcessDamagedError
try:
    with ProcessGuard()("mock", "import"):
        os.closerange(3, 4096)
except ProcessDamagedError as error:
    print(error)
"""


@pytest.mark.guards(
    "in a user's own program, a plugin closes all files",
    "`ProcessDamagedError`, which names it",
    area="toolchains",
)
def test_files_that_were_closed_blindly_are_damage() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", CLOSES], env=with_tests(), capture_output=True, text=True, check=False
    )

    assert done.stdout == f"{ProcessDamagedError('mock', 'import', 'closed files that are not its own')}\n"
