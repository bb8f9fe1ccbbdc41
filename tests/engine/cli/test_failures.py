"""One message, an exit status, and a traceback only when asked for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from collage.cli import failures
from collage_core.errors import ModelFileError, UsageError
from tests.engine.cli.conftest import FakePipeline

Collage = Callable[..., Result]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ModelFileError("m.onnx", "it holds no graph"), 1, "Error: cannot use 'm.onnx' as an ONNX model: it holds"),
        (UsageError("there is no toolchain 'tensort'"), 2, "Error: there is no toolchain 'tensort'"),
        (OSError(28, "No space left on device"), 1, "Error: [Errno 28] No space left on device"),
        (KeyError("oops"), 1, "Error: Collage itself failed: KeyError: 'oops'. Run the command again with -v"),
    ],
)
def test_an_error_is_one_message(
    collage: Collage, pipeline: FakePipeline, model: Path, error: Exception, status: int, message: str
) -> None:
    pipeline.error = error

    result = collage("inspect", model)

    assert result.exit_code == status
    assert result.stderr.startswith(message)
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_traceback_is_shown_under_v(collage: Collage, pipeline: FakePipeline, model: Path, where: str) -> None:
    pipeline.error = ModelFileError("m.onnx", "it holds no graph")

    result = collage("-v", "inspect", model) if where == "before" else collage("inspect", model, "-v")

    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: cannot use 'm.onnx'")


def test_an_interruption_is_one_line_and_130(collage: Collage, pipeline: FakePipeline, model: Path) -> None:
    pipeline.error = KeyboardInterrupt()

    result = collage("optimize", model, "-o", "out.collage")

    assert result.exit_code == 130
    assert "Interrupted. What was measured so far is kept in the tuning database." in result.stderr
    assert "itself failed" not in result.stderr


@pytest.mark.guards("SIGTERM (`timeout`, `docker stop`) or SIGHUP (a closed terminal)")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_asks_to_end_interrupts(
    collage: Collage, pipeline: FakePipeline, model: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    cleared: list[int] = []

    def optimize(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(3600)
        finally:
            os.kill(os.getpid(), number)  # a closing terminal tells twice
            time.sleep(0.01)
            cleared.append(number)

    monkeypatch.setattr(pipeline, "optimize", optimize)
    monkeypatch.setattr(failures, "_DEAF_S", 3600.0)
    before = signal.signal(number, signal.SIG_DFL)  # ignored if the tests themselves run under `nohup`

    try:
        result = collage("optimize", model, "-o", "out.collage")
        after = signal.getsignal(number)
    finally:
        signal.signal(number, before)

    assert cleared == [number]
    assert result.exit_code == status
    assert f"Ended by {signal.Signals(number).name}. What was measured so far is kept" in result.stderr
    assert after is signal.SIG_DFL


@pytest.mark.guards("SIGTERM (`timeout`, `docker stop`) or SIGHUP (a closed terminal)")
def test_what_is_ignored_stays_ignored(
    collage: Collage, pipeline: FakePipeline, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `nohup`."""
    monkeypatch.setattr(pipeline, "optimize", lambda *_, **__: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = collage("optimize", model, "-o", "out.collage")
    finally:
        signal.signal(signal.SIGHUP, before)

    assert result.exit_code != 129


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["optimize", "missing.onnx", "-o", "x"], "File 'missing.onnx' does not exist"),
        (["optimize", "MODEL"], "Missing option '-o' / '--output'"),
        (["optimize", "MODEL", "-o", "no/such/x"], "there is no directory"),
        (["optimize", "MODEL", "-o", "."], "is a directory"),
        (["optimize", "MODEL", "-o", "x", "--json", "no/such.json"], "there is no directory"),
        (["optimize", "MODEL", "-o", "x", "--budget", "soon"], "'soon' is not a time; write for example 90s"),
        (["optimize", "MODEL", "-o", "x", "--budget", "0m"], "'0m' is not a time"),
        (["optimize", "MODEL", "-o", "x", "--input-shapes", "x:1;3"], "'x:1;3' is not an input shape"),
        (["optimize", "MODEL", "-o", "x", "--input-shapes", "[1,3]"], "'[1,3]' is not an input shape"),
        (
            ["inspect", "MODEL", "--input-shapes", "x:[1]", "--input-shapes", "x:[2]"],
            "input 'x' is given two shapes",
        ),
        (["optimize", "MODEL", "-o", "x", "--toolchains", "openvino("], "'openvino(' is not a target"),
        (["optimize", "MODEL", "-o", "x", "--toolchains", ","], "name at least one toolchain"),
        (["optimize", "MODEL", "-o", "x", "--preset", "fast"], "'fast' is not one of"),
        (["optimize", "MODEL", "-o", "x", "--max-error", "2"], "2.0 is not in the range 0<x<1"),
        (["optimize", "MODEL", "-o", "x", "--threads", "0"], "0 is not in the range x>=1"),
        (["run", "MODEL", "--inputs", "MODEL"], "not an NPZ file"),
        (["bench"], "Missing argument"),
        (["no-such-command"], "No such command"),
    ],
)
def test_misuse_is_explained_before_any_work(
    collage: Collage, pipeline: FakePipeline, model: Path, arguments: list[str], complaint: str
) -> None:
    result = collage(*(str(model) if argument == "MODEL" else argument for argument in arguments))

    assert result.exit_code == 2
    assert complaint in result.stderr
    assert [name for name, _ in pipeline.calls if name != "load"] == []
