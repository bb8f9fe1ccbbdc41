"""Work in another process ends in an answer, whatever happens there."""

from __future__ import annotations

import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_testing.kit import isolated
from collage_testing.kit.isolated import IsolatedProcess, Lost

ANSWERING = """
import os, time
from collage_testing.kit import isolated
from collage_testing.kit.isolated import serve

def answer(line):
    if line == "die":
        os.abort()
    if line == "leave":
        os._exit(3)
    if line == "sleep":
        open("asleep", "w").close()
        time.sleep(3600)
    print("not an answer")
    return {"line": line}

serve(answer)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[IsolatedProcess]:
    (tmp_path / "answering.py").write_text(ANSWERING)
    process = IsolatedProcess("answering", [], folder=tmp_path, start_s=3600.0)
    yield process
    process.close()


def test_each_line_is_answered_and_what_is_printed_is_no_answer(process: IsolatedProcess) -> None:
    assert [process.ask(line, 3600.0) for line in ("a", "b c")] == [{"line": "a"}, {"line": "b c"}]
    assert process.alive


def test_a_crash_is_told_with_the_place_it_happened(process: IsolatedProcess) -> None:
    lost = process.ask("die", 3600.0)

    assert isinstance(lost, Lost)
    assert lost.kind == "crash"
    assert "SIGABRT" in lost.reason
    assert "answering.py" in lost.reason
    assert not process.alive


def test_an_exit_is_told_with_its_status(process: IsolatedProcess) -> None:
    lost = process.ask("leave", 3600.0)

    assert isinstance(lost, Lost)
    assert (lost.kind, "exit status 3" in lost.reason) == ("crash", True)


def test_what_does_not_answer_in_time_is_ended_where_it_is(
    process: IsolatedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def select(*_: object) -> tuple[list[object], ...]:
        while not (tmp_path / "asleep").exists():
            time.sleep(0.01)
        return [], [], []

    monkeypatch.setattr(isolated, "select", types.SimpleNamespace(select=select))

    lost = process.ask("sleep", 0.5)

    assert isinstance(lost, Lost)
    assert lost.kind == "timeout"
    assert "in answer" in lost.reason
    assert not process.alive


def test_what_does_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        IsolatedProcess("no_such_module", [], folder=tmp_path, start_s=3600.0)
