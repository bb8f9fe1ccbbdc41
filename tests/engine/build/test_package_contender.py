from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from collage.build import package_contender as contender


class FakeSession:
    """Counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

        self.fed: list[dict[str, Any]] = []

    def set_inputs(self, feeds: dict[str, Any]) -> None:
        self.fed.append(feeds)

    def run(self, names: None, feeds: dict[str, Any]) -> dict[str, Any]:
        self.runs += 1
        return feeds

    def run_bound(self) -> None:
        self.runs += 1

    bound_steps = ()
    runs_until_bound = 2

    @property
    def bound_call(self) -> Any:
        reference = weakref.ref(self)  # a kernel's own call does not keep the session

        def call() -> None:
            session = reference()
            assert session is not None
            session.runs += 1

        return call


@pytest.mark.parametrize("warmup", [0, 3])
def test_the_call_keeps_its_session_and_comes_warm(warmup: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[weakref.ref[FakeSession]] = []

    def load(package: str, *, threads: int, trusted: bool) -> FakeSession:
        session = FakeSession()
        sessions.append(weakref.ref(session))
        return session

    monkeypatch.setattr(contender, "load", load)
    monkeypatch.setattr(contender, "read_values", lambda path: {"x": 1})

    call = contender.package_call("p.collage", ["in.json"], 2, warmup)
    gc.collect()

    call()
    session = sessions[0]()
    assert session is not None
    assert session.runs == 1 + warmup + 1
    assert call.as_called() == session.fed[0] == {"x": 1}  # type: ignore[attr-defined]
    assert session.runs == 1 + warmup + 2


def test_runs_have_several_inputs_in_turn_as_users_call_them(monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession()
    monkeypatch.setattr(contender, "load", lambda package, *, threads, trusted: session)
    monkeypatch.setattr(contender, "read_values", lambda path: {"x": path.name})

    call = contender.package_call("p.collage", ["a", "b", "c"], 2)

    assert [call()["x"] for _ in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]
    assert session.runs == 1 + 3 * session.runs_until_bound + 7, "each was met until it was bound"
    assert session.fed == [{"x": "a"}], "steps are timed with the first"
    assert not hasattr(call, "as_called"), "it is as users call it"
