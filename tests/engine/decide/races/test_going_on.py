"""A race goes on: further plans join, and of those that ran only some stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.decide.decision import decide
from collage.decide.races import race
from collage.decide.races.going_on import gone_on
from collage.options import PRESETS
from collage.store import TuningStore
from tests.engine.decide.racing import FAST, MIDDLE, MIXED, SLOW, A, B, Track, on, plan_of, timer


def test_a_race_goes_on_with_who_matters_and_who_joins(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = plan_of("mixed-2", B, A, single=False)
    track = on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 150.0), (SLOW, 400.0), (MIXED, 90.0), (late, 80.0)]))
    plans = [FAST, MIDDLE, SLOW, MIXED]
    first = timer(database, tmp_path).timer.run(plans)
    ran, rounds = len(track.runs), PRESETS["quick"].rounds

    timings = gone_on(timer(database, tmp_path).timer.run, plans, [late], first, seed=0)

    assert track.runs[ran:] == [["a", "mixed-1", "mixed-2"], ["a", "mixed-2"]]
    assert track.first_rounds[ran:] == [rounds, rounds + race.FIRST_ROUNDS]
    assert {each.name: (each.first_round, len(each.rounds_us)) for each in timings.timed} == {
        "a": (0, 2 * rounds),
        "b": (0, race.FIRST_ROUNDS),
        "c": (0, race.FIRST_ROUNDS),
        "mixed-1": (0, rounds + race.FIRST_ROUNDS),
        "mixed-2": (rounds, rounds),
    }
    assert decide(timings.timed, 0).winner == "mixed-2"
    # another run finds both parts in the database
    ran = len(track.runs)
    assert gone_on(timer(database, tmp_path).timer.run, plans, [late], first, seed=0) == timings
    assert len(track.runs) == ran


def test_who_fails_when_a_race_goes_on_has_failed(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = plan_of("mixed-2", B, A, single=False)
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0), (late, 80.0)], crashes={"mixed-1": 3}))
    first = timer(database, tmp_path).timer.run([FAST, MIXED])
    assert len(track.runs) == 2

    timings = gone_on(timer(database, tmp_path).timer.run, [FAST, MIXED], [late], first, seed=0)

    assert [each.name for each in timings.timed] == ["a", "mixed-2"]
    assert "signal 11" in timings.failed["mixed-1"]


def test_rounds_that_follow_different_races_are_not_one_race(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 150.0), (MIXED, 90.0)]))
    run = timer(database, tmp_path).timer.run
    one, other = run([FAST, MIDDLE]), run([FAST])
    ran = len(track.runs)

    run([FAST, MIXED], after=one)
    run([FAST, MIXED], after=other)
    run([FAST, MIXED])

    assert len([each for each in track.runs[ran:] if "mixed-1" in each]) == 6
