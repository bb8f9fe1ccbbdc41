"""What a run makes beforehand: each step once, as far as time goes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.gpu_steps import Clock, OutOfTimeError, made


def test_a_step_is_done_once_and_a_refusal_is_remembered(tmp_path: Path) -> None:
    count, done = tmp_path / "count", tmp_path / "made"
    fails = [sys.executable, "-c", f"open({str(count)!r}, 'a').write('x'); raise SystemExit('no such operator')"]
    works = [sys.executable, "-c", f"open({str(count)!r}, 'a').write('y'); open({str(done)!r}, 'w').close()"]

    assert made(done, fails, 3600.0) == "no such operator"
    assert made(done, works, 3600.0) == "no such operator"
    assert made(done, works, 3600.0, again=True) == ""
    assert made(done, fails, 3600.0, again=True) == ""
    assert count.read_text() == "xy"


def test_of_what_a_command_says_its_error_is_kept(tmp_path: Path) -> None:
    said = "preparing ... done\\nError: the plan does not run: RuntimeError: CUDA error 700\\nrun it again"
    fails = [sys.executable, "-c", f"raise SystemExit('{said}')"]

    assert made(tmp_path / "made", fails, 3600.0) == (
        "Error: the plan does not run: RuntimeError: CUDA error 700 run it again"
    )


def test_a_step_that_took_too_long_is_not_held_against_it(tmp_path: Path) -> None:
    done = tmp_path / "made"

    assert made(done, [sys.executable, "-c", "import time; time.sleep(3600)"], 0.5) == "not done within 0 s"
    assert made(done, [sys.executable, "-c", f"open({str(done)!r}, 'w').close()"], 3600.0) == ""


def test_nothing_is_begun_when_time_is_nearly_up() -> None:
    now = [0.0]
    clock = Clock(end=600.0, now=lambda: now[0])

    assert clock.left(1800.0, "a step") == 600.0
    assert clock.left(100.0, "a step") == 100.0
    now[0] = 580.0
    with pytest.raises(OutOfTimeError, match="a step"):
        clock.left(1.0, "a step")
    assert Clock().left(1800.0, "a step") == 1800.0
