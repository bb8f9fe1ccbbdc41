"""A race goes on: further plans join, and of those that ran only some stay."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collage.decide.decision import decide
from collage.decide.races import race
from collage.decide.races.going_on import gone_on
from collage.options import PRESETS
from collage.store import TuningStore
from tests.engine.decide.racing import FAST, MIDDLE, MIXED, SLOW, A, B, C, Track, on, plan_of, timer


def test_a_race_goes_on_with_who_matters_and_who_joins(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = plan_of("mixed-2", B, A, single=False)
    track = on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 150.0), (SLOW, 400.0), (MIXED, 90.0), (late, 80.0)]))
    plans = [FAST, MIDDLE, SLOW, MIXED]
    first = timer(database, tmp_path).timer.run(plans)
    ran, rounds = len(track.runs), PRESETS["quick"].rounds

    timings = gone_on(timer(database, tmp_path).timer.run, plans, [late], first, seed=0)

    assert track.runs[ran:] == [["a", "mixed-1", "mixed-2"]] * 2
    assert track.first_rounds[ran:] == [rounds, rounds + race.FIRST_ROUNDS]
    assert {each.name: (each.first_round, len(each.rounds_us)) for each in timings.timed} == {
        "a": (0, 2 * rounds),
        "b": (0, race.FIRST_ROUNDS),
        "c": (0, race.FIRST_ROUNDS),
        "mixed-1": (0, 2 * rounds),
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


def test_who_had_left_and_comes_back_counts_by_what_it_did_since(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest toolchain crashes in the second heat; the next one left after the first."""
    late = plan_of("mixed-2", B, A, single=False)
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 110.0), (MIXED, 90.0), (late, 80.0)], crashes={"a": 2}))
    plans = [FAST, MIDDLE, MIXED]
    first = timer(database, tmp_path).timer.run(plans)
    assert {each.name: each.end for each in first.timed} == {
        "b": race.FIRST_ROUNDS,
        "mixed-1": PRESETS["quick"].rounds,
    }

    timings = gone_on(timer(database, tmp_path).timer.run, plans, [late], first, seed=0)

    [back] = [each for each in timings.timed if each.name == "b"]
    assert back.first_round == PRESETS["quick"].rounds
    assert decide(timings.timed, 0).winner == "mixed-2"


@pytest.mark.parametrize("also", [{}, {"mixed-1": 3}], ids=["alone", "with a mixed plan"])
def test_the_race_so_far_stands_if_what_plans_are_compared_with_fails_later(
    also: dict[str, int], database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = plan_of("mixed-2", B, A, single=False)
    track = Track([(FAST, 100.0), (MIDDLE, 150.0), (MIXED, 90.0), (late, 80.0)], crashes={"a": 3, **also})
    on(monkeypatch, track)
    plans = [FAST, MIDDLE, MIXED]
    first = timer(database, tmp_path).timer.run(plans)
    assert len(track.runs) == 2

    timings = gone_on(timer(database, tmp_path).timer.run, plans, [late], first, seed=0)

    assert timings.timed == tuple(each for each in first.timed if each.name not in also)
    assert timings.failed["mixed-2"] == "nothing was left to compare it with (a failed)"
    assert set(timings.failed) == {"mixed-2", *also}
    assert timings.took_s == first.took_s + timings.joined_s > first.took_s  # no limit forgets these seconds
    assert decide(timings.timed, 0).winner == ("a" if also else "mixed-1")


def test_what_would_be_kept_stays_beside_what_looks_better(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = plan_of("mixed-2", B, A, single=False)
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0), (late, 85.0)]))
    first = timer(database, tmp_path).timer.run([FAST, MIXED])
    ran = len(track.runs)

    gone_on(timer(database, tmp_path).timer.run, [FAST, MIXED], [late], first, seed=0)

    assert track.runs[ran:] == [["a", "mixed-1", "mixed-2"]] * 2


def test_a_toolchain_that_is_slower_by_far_does_not_run_beside_what_joins(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, later = plan_of("mixed-2", B, A, single=False), plan_of("mixed-3", C, A, single=False)
    track = on(monkeypatch, Track([(FAST, 200.0), (MIXED, 80.0), (late, 76.0), (later, 72.0)]))
    run = timer(database, tmp_path).timer.run
    timings, plans = run([FAST, MIXED]), [FAST, MIXED]
    assert track.runs == [["a", "mixed-1"]]

    for joining in (late, later):
        ran = len(track.runs)
        best = decide(timings.timed, 0).winner
        timings = gone_on(run, plans, [joining], timings, seed=0)
        plans.append(joining)

        assert track.runs[ran] == [best, joining.name]
        assert all("a" not in heat for heat in track.runs[ran:])
    decision = decide(timings.timed, 0)
    assert (decision.winner, decision.incumbent) == ("mixed-3", "a")
    assert decision.ratios["mixed-3"].value == pytest.approx(72 / 200, rel=0.02)


def test_what_joined_is_left_out_if_the_plan_fails_that_runs_beside_it_alone(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, late = plan_of("mixed-2", B, A, single=False), plan_of("mixed-3", C, A, single=False)
    track = Track([(FAST, 200.0), (MIXED, 80.0), (other, 95.0), (late, 76.0)], crashes={"mixed-1": 2})
    on(monkeypatch, track)
    run, plans = timer(database, tmp_path).timer.run, [FAST, MIXED, other]
    first = run(plans)
    assert decide(first.timed, 0).winner == "mixed-1"
    assert len(track.runs) == 1

    timings = gone_on(run, plans, [late], first, seed=0)

    assert "signal 11" in timings.failed["mixed-1"]
    assert [each.name for each in timings.timed] == ["a", "mixed-2", "mixed-3"]
    decision = decide(timings.timed, 0)
    assert (decision.winner, decision.incumbent) == ("mixed-2", "a")


@pytest.mark.parametrize("joins", [True, False])
def test_mixed_plans_whose_order_is_open_run_on_beside_what_joins_or_alone(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    other, late = plan_of("mixed-2", B, A, single=False), plan_of("mixed-3", C, A, single=False)
    track = on(monkeypatch, Track([(FAST, 200.0), (MIXED, 80.0), (other, 80.01), (late, 76.0)]))
    run, plans = timer(database, tmp_path, preset=PRESETS["default"]).timer.run, [FAST, MIXED, other]
    first = run(plans, mixes_wait=True)
    assert (first.open, track.runs) == (("mixed-1", "mixed-2"), [["a", "mixed-1", "mixed-2"]])

    timings = gone_on(run, plans, [late] if joins else [], first, seed=0)

    assert track.runs[1] == ["mixed-1", "mixed-2", *(["mixed-3"] if joins else [])]
    assert timings.open == ()
    decision = decide(timings.timed, 0)
    assert (decision.winner, decision.incumbent) == ("mixed-3" if joins else "mixed-1", "a")
    ran = len(track.runs)
    assert run(plans, mixes_wait=True) == first
    assert len(track.runs) == ran
    assert run(plans).open == ()  # a race that nobody goes on with does not wait
    assert track.runs[ran:] == [["a", "mixed-1", "mixed-2"], ["mixed-1", "mixed-2"]]


def test_plans_join_no_longer_than_others_raced_before(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))
    bench, limit_s = timer(database, tmp_path).timer, PRESETS["quick"].race_s
    first = bench.run([FAST])
    assert first.took_s > 0
    long, short = (dataclasses.replace(first, took_s=took_s) for took_s in (4 * limit_s, 10.0))
    ran = len(track.runs)

    assert (bench.left_s(long), bench.left_s(short)) == (30 - 3 * limit_s, 10)
    assert bench.left_s(dataclasses.replace(short, took_s=13.0, repeated_s=3.0)) == 10
    joined = short.then(dataclasses.replace(short, timed=(), took_s=6.0, repeated_s=1.0))
    assert (joined.joined_s, bench.left_s(joined)) == (5, 5)
    again = joined.then(dataclasses.replace(short, timed=(), took_s=6.0))
    assert (again.joined_s, bench.left_s(again)) == (11, -1)
    waited = dataclasses.replace(short, open=("mixed-1", "mixed-2"), waited=True)
    joined = waited.then(dataclasses.replace(short, timed=(), took_s=6.0))
    assert (bench.left_s(waited), bench.left_s(joined)) == (20, 14)
    bench.run([FAST, MIXED], after=dataclasses.replace(long, race="long"))
    assert len(track.runs) == ran + 1  # the first heat is run in any case
    bench.run([FAST, MIXED], after=dataclasses.replace(short, race="short"))
    assert len(track.runs) == ran + 3


def test_rounds_that_follow_different_races_are_not_one_race(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 150.0), (MIXED, 90.0)]))
    run = timer(database, tmp_path).timer.run
    one, other = (dataclasses.replace(run(plans), took_s=10.0) for plans in ([FAST, MIDDLE], [FAST]))
    ran = len(track.runs)

    run([FAST, MIXED], after=one)
    run([FAST, MIXED], after=other)
    run([FAST, MIXED])

    assert len([each for each in track.runs[ran:] if "mixed-1" in each]) == 6
