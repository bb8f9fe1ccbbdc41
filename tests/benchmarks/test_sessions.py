"""Contenders that take turns, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sessions
from benchmarks.sessions import in_turns

MODULE = """
import sys
from benchmarks.sessions import answer

def parts():
    name = sys.argv[sys.argv.index("--contender") + 1]
    with open(sys.argv[sys.argv.index("--work") + 1] + "/log", "a") as log:
        for part in range(9):
            print(name, part, file=log, flush=True)
            if name == "fails" and part == 2:
                raise SystemExit("no more of this")
            yield {"part": part, "of": sys.argv[1]}

answer(parts())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "takes_turns.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(sessions.__file__).parent.parent}")
    monkeypatch.setattr(sessions, "SETTLE_S", 0.0)
    return "takes_turns"


def test_all_have_done_a_part_before_one_does_the_next(module: str, tmp_path: Path) -> None:
    found = in_turns(module, tmp_path, ["a", "b", "c"], 4, "case")

    assert found == {name: [{"part": part, "of": "case"} for part in (1, 2, 3, 4)] for name in "abc"}
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [int(part) for _, part in lines] == [part for part in range(5) for _ in "abc"]
    assert len({tuple(name for name, _ in lines[3 * part : 3 * part + 3]) for part in range(5)}) > 1, "orders differ"


def test_one_that_fails_is_named_with_what_it_said(module: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^fails failed:\nno more of this\n$"):
        in_turns(module, tmp_path, ["a", "fails"], 4, "case")
