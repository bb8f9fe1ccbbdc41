"""A contender that is killed at its deadline may be right with more time; one that fails is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.measure.contenders.interleaved import Contender, ContenderProcess, took_too_long
from collage.measure.wire.outcomes import Failed

MODULE = """
import time

def hangs():
    time.sleep(600)

def fails():
    raise ValueError("deadline: no")
"""


@pytest.mark.parametrize(("way", "is_late"), [("hangs", True), ("fails", False)])
def test_only_what_is_killed_at_its_deadline_is_late(way: str, is_late: bool, tmp_path: Path) -> None:
    (tmp_path / "late_contender.py").write_text(MODULE, encoding="utf-8")
    contender = Contender(name="one", call=f"late_contender:{way}", paths=(str(tmp_path),))

    with ContenderProcess(contender) as process:
        found = process.prepare(1.0 if is_late else 120.0)

    assert isinstance(found, Failed)
    assert took_too_long(found) == is_late
