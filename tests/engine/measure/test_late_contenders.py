"""A contender that is killed at its deadline may be right with more time; one that fails otherwise is not."""

from __future__ import annotations

import pytest

from collage.errors import WorkerError
from collage.measure.contenders import interleaved
from collage.measure.contenders.interleaved import Contender, ContenderProcess, took_too_long
from collage.measure.wire.outcomes import Failed


@pytest.mark.parametrize(("kind", "is_late"), [("deadline", True), ("crash", False), ("memory", False)])
def test_only_what_is_killed_at_its_deadline_is_late(kind: str, is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def __init__(self, name: str, *rest: object) -> None:
            raise WorkerError(name, kind, "deadline: it says so itself")

    monkeypatch.setattr(interleaved, "ChildProcess", Ended)
    with ContenderProcess(Contender(name="one", call="a:b")) as process:
        found = process.prepare(1.0)

    assert isinstance(found, Failed)
    assert took_too_long(found) == is_late
