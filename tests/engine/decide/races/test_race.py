"""Races of contenders that do not run."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from collage.decide.races import race as module
from collage.decide.races.race import FIRST_ROUNDS, HEAT_ROUNDS, MIXES_ROUNDS, Raced, race
from collage.decide.races.staying import LOOKED_AT
from collage.measure.clocks.load_wait import LoadWait
from collage.measure.contenders.interleaved import Contender
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed, Stage
from collage.report.progress import SilentProgress

ENOUGH = FIRST_ROUNDS + HEAT_ROUNDS


class Track:
    """Where contenders run: times them by what it was told, and notes who ran.

    Args:
        times_us: Time by name.
        noise: Standard deviation of a round, relative.
        crashes: Heat in which each of some fails, from 0.
    """

    def __init__(self, times_us: Mapping[str, float], noise: float = 0.0, crashes: Mapping[str, int] | None = None):
        self._times_us = times_us
        self._noise = noise
        self._crashes = crashes or {}
        self._random = np.random.default_rng(5)
        self.heats: list[tuple[str, ...]] = []
        self.rounds: list[int] = []
        self.first_rounds: list[int] = []

    def interleaved(
        self, contenders: Sequence[Contender], *, rounds: int, first_round: int, **_: Any
    ) -> dict[str, Any]:
        self.first_rounds.append(first_round)
        self.heats.append(tuple(contender.name for contender in contenders))
        self.rounds.append(rounds)
        return {contender.name: self._answer(contender.name, rounds) for contender in contenders}

    def _answer(self, name: str, rounds: int) -> Any:
        if self._crashes.get(name) == len(self.heats) - 1:
            return Failed(stage=Stage.RUN, reason="crash: signal 11")
        factors = 1 + self._noise * self._random.standard_normal(rounds)
        return tuple((float(self._times_us[name] * factor),) * 3 for factor in factors)


class CalledTrack(Track):
    """A track with times of runs as users call them, which have a noise of their own."""

    def __init__(self, times_us: Mapping[str, float], called_us: Mapping[str, float], called_noise: float) -> None:
        super().__init__(times_us)
        self._called_us = called_us
        self._called_noise = called_noise

    def interleaved(
        self, contenders: Sequence[Contender], *, rounds: int, first_round: int, on_burst: Any = None, **_: Any
    ) -> dict[str, Any]:
        for contender in contenders:
            for factor in 1 + self._called_noise * self._random.standard_normal(rounds):
                called_us = (float(self._called_us[contender.name] * factor),) * 3
                on_burst(contender.name, Burst(samples_us=(1.0,), called_us=called_us, calibration_us=1.0))
        return super().interleaved(contenders, rounds=rounds, first_round=first_round)


class LeavingTrack(Track):
    """A track that contenders may leave after each round."""

    def interleaved(
        self, contenders: Sequence[Contender], *, rounds: int, first_round: int, leaving: Any = None, **_: Any
    ) -> dict[str, Any]:
        whole = super().interleaved(contenders, rounds=rounds, first_round=first_round)
        left: dict[str, int] = {}
        for done in range(1, rounds + 1) if leaving is not None else ():
            so_far = {name: each[: left.get(name, done)] for name, each in whole.items()}
            left = {**dict.fromkeys(leaving(so_far), done), **left}
        return {name: each[: left.get(name, rounds)] for name, each in whole.items()}


class DisturbedTrack(Track):
    """A track on which every heat takes turns again.

    Args:
        times_us: As of a track.
        again_s: How long these take in each heat.
    """

    def __init__(self, times_us: Mapping[str, float], again_s: float) -> None:
        super().__init__(times_us, noise=0.2)
        self._again_s = again_s

    def interleaved(
        self, contenders: Sequence[Contender], *, rounds: int, first_round: int, repeating: Any = None, **_: Any
    ) -> dict[str, Any]:
        assert repeating is not None
        repeating.spent_s += self._again_s
        return super().interleaved(contenders, rounds=rounds, first_round=first_round)


def run(
    track: Track,
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    incumbents: str,
    *,
    rounds: int = 84,
    limit_s: float = 1e9,
    keep: str = "",
    mixes_wait: bool = False,
    no_time: Callable[[float], bool] = lambda _: False,
    load_wait_s: float = 0.0,
    clock: Iterator[int] | None = None,
) -> Raced:
    monkeypatch.setattr(module, "interleaved", track.interleaved)
    ticks = itertools.repeat(0) if clock is None else clock
    return race(
        {name: Contender(name=name, call="m:f") for name in names},
        incumbents,
        rounds=rounds,
        round_s=0.1,
        limit_s=limit_s,
        keep=keep,
        mixes_wait=mixes_wait,
        no_time=no_time,
        threads=1,
        load_wait_s=load_wait_s,
        progress=SilentProgress(),
        clock=lambda: next(ticks),
    )


def test_who_is_far_slower_leaves_after_the_first_heat(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "b": 100.1, "c": 400.0, "m": 90.0}, noise=0.06)

    raced = run(track, monkeypatch, "abcm", "abc", rounds=ENOUGH)

    assert track.heats == [("a", "b", "c", "m"), ("a", "b", "m")]
    assert track.rounds == [FIRST_ROUNDS, HEAT_ROUNDS]
    assert {name: len(rounds) for name, rounds in raced.rounds.items()} == {
        "a": ENOUGH,
        "b": ENOUGH,
        "c": FIRST_ROUNDS,
        "m": ENOUGH,
    }


def test_no_round_repeats_the_order_of_an_earlier_heat(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "m": 90.0}, noise=0.2)

    run(track, monkeypatch, "am", "a", rounds=FIRST_ROUNDS + 2 * HEAT_ROUNDS)

    assert track.first_rounds == [0, FIRST_ROUNDS, FIRST_ROUNDS + HEAT_ROUNDS]


def test_the_best_incumbent_stays_though_it_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "b": 110.0, "m": 85.0})

    raced = run(track, monkeypatch, "abm", "ab")

    assert track.heats[1] == ("a", "m")
    assert len(raced.rounds["a"]) == len(raced.rounds["m"]) == ENOUGH


def test_mixed_plans_that_are_faster_by_far_race_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 200.0, "b": 220.0, "m": 90.0, "n": 90.02})

    raced = run(track, monkeypatch, "abmn", "ab")

    assert track.heats[1] == ("m", "n")
    most = FIRST_ROUNDS + MIXES_ROUNDS
    assert [len(raced.rounds[name]) for name in "abmn"] == [FIRST_ROUNDS, FIRST_ROUNDS, most, most]
    alone = run(Track({"a": 200.0, "m": 90.0}), monkeypatch, "am", "a")
    assert (len(alone.rounds["a"]), len(alone.rounds["m"])) == (FIRST_ROUNDS, FIRST_ROUNDS)


def test_mixed_plans_that_are_faster_by_far_may_wait_for_others_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 200.0, "m": 90.0, "n": 90.02, "o": 120.0})
    raced = run(track, monkeypatch, "amno", "a", mixes_wait=True)
    assert (track.heats, raced.open, raced.cut_short) == ([("a", "m", "n", "o")], ("m", "n"), False)

    alone = run(Track({"a": 200.0, "m": 90.0}), monkeypatch, "am", "a", mixes_wait=True)
    assert alone.open == ()

    close = Track({"a": 100.0, "m": 90.0, "n": 90.02})
    assert run(close, monkeypatch, "amn", "a", mixes_wait=True).open == ()
    assert close.heats[1] == ("a", "m", "n")


def test_it_goes_on_while_it_is_open_who_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    close = run(Track({"a": 100.0, "m": 90.0}, noise=0.2), monkeypatch, "am", "a")
    clear = run(Track({"a": 100.0, "m": 85.0}, noise=0.05), monkeypatch, "am", "a")

    assert len(close.rounds["a"]) > 2 * ENOUGH
    assert len(clear.rounds["a"]) == ENOUGH


def test_a_small_difference_is_settled_once_it_is_known_to_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = run(Track({"a": 100.0, "m": 99.9}, noise=0.004), monkeypatch, "am", "a")

    assert len(raced.rounds["a"]) == ENOUGH


def test_who_will_not_be_kept_leaves_and_without_a_mixed_plan_one_toolchain_need_not_run_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    track = Track({"a": 100.0, "b": 125.0, "m": 115.0}, noise=0.02)

    raced = run(track, monkeypatch, "abm", "ab")

    assert track.heats == [("a", "b", "m")]
    assert {name: len(rounds) for name, rounds in raced.rounds.items()} == dict.fromkeys("abm", FIRST_ROUNDS)


def test_without_any_time_there_is_the_first_heat_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "m": 99.0}, noise=0.2)

    raced = run(track, monkeypatch, "am", "a", no_time=lambda _: True)

    assert track.rounds == [FIRST_ROUNDS]
    assert set(raced.rounds) == {"a", "m"}
    assert raced.cut_short


def test_a_heat_is_expected_to_take_what_turns_took_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "b": 400.0, "m": 90.0}, noise=0.2)
    expected_s: list[float] = []

    def no_time(heat_s: float) -> bool:
        expected_s.append(heat_s)
        return False

    raced = run(track, monkeypatch, "abm", "ab", rounds=24, no_time=no_time, clock=itertools.count(step=36))

    assert track.heats == [("a", "b", "m"), ("a", "m"), ("a", "m")]
    # 18 turns took 36 s; 42 took 72; then 6 rounds are left
    assert expected_s == [2.0 * 2 * HEAT_ROUNDS, 72 / 42 * 2 * 6]
    assert not raced.cut_short


@pytest.mark.parametrize(("left_s", "no_time"), [(200, False), (199, True)])
def test_turns_are_taken_again_if_the_budget_leaves_twice_the_limit(
    left_s: float, no_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[LoadWait, float, Callable[[], bool]]] = []

    def repeating(wait: LoadWait, limit_s: float, _: object, *, no_time: Callable[[], bool], clock: object) -> Any:
        made.append((wait, limit_s, no_time))
        return types.SimpleNamespace(spent_s=0.0)

    monkeypatch.setattr(module, "Repeating", repeating)
    run(Track({"a": 1.0}), monkeypatch, "a", "a", limit_s=100, load_wait_s=5.0, no_time=lambda heat_s: heat_s > left_s)

    [(wait, limit_s, has_no_time)] = made
    assert (wait.most_s, limit_s, has_no_time()) == (5.0, 100, no_time)


def test_no_limit_counts_the_seconds_of_turns_that_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    close = {"a": 100.0, "m": 90.0}
    calm = run(Track(close, noise=0.2), monkeypatch, "am", "a", limit_s=95, clock=itertools.count(step=30))
    counted = run(Track(close, noise=0.2), monkeypatch, "am", "a", limit_s=95, clock=itertools.count(step=50))
    disturbed = run(DisturbedTrack(close, 20), monkeypatch, "am", "a", limit_s=95, clock=itertools.count(step=50))

    assert len(disturbed.rounds["a"]) == len(calm.rounds["a"]) > len(counted.rounds["a"])
    assert (calm.repeated_s, disturbed.repeated_s) == (0, 60)


def test_a_race_that_has_nothing_left_to_settle_is_not_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = run(Track({"a": 100.0, "b": 400.0}), monkeypatch, "ab", "ab", no_time=lambda _: True)

    assert not raced.cut_short


def test_who_is_to_be_kept_stays_as_long_as_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    times_us = {"a": 100.0, "m": 90.0, "n": 85.0}
    left = run(Track(times_us), monkeypatch, "amn", "a")
    kept = run(Track(times_us), monkeypatch, "amn", "a", keep="m")
    alone = run(Track({"a": 100.0, "m": 125.0, "n": 130.0}), monkeypatch, "amn", "a", keep="m")

    assert (len(left.rounds["m"]), len(left.rounds["n"])) == (FIRST_ROUNDS, ENOUGH)
    assert len(kept.rounds["m"]) == len(kept.rounds["n"]) == ENOUGH
    assert len(alone.rounds["m"]) == FIRST_ROUNDS


def test_a_race_ends_once_only_those_are_left_that_raced_before(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = run(Track({"a": 100.0, "m": 80.0, "n": 90.0}), monkeypatch, "amn", "a", keep="m")

    assert {name: len(rounds) for name, rounds in raced.rounds.items()} == dict.fromkeys("amn", FIRST_ROUNDS)


def test_who_is_to_be_kept_does_not_leave_within_the_first_heat(monkeypatch: pytest.MonkeyPatch) -> None:
    times_us = {"a": 100.0, "m": 200.0, "n": 70.0}
    left = run(LeavingTrack(times_us), monkeypatch, "amn", "a")
    kept = run(LeavingTrack(times_us), monkeypatch, "amn", "a", keep="m")

    assert len(left.rounds["m"]) == LOOKED_AT
    assert len(kept.rounds["m"]) == len(kept.rounds["n"])


def test_no_heat_begins_after_the_limit_save_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "m": 80.0}, noise=0.2)

    run(track, monkeypatch, "am", "a", limit_s=15.0, clock=itertools.count(step=20))

    assert track.rounds == [FIRST_ROUNDS, HEAT_ROUNDS]


def test_who_crashes_has_no_samples_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Track({"a": 100.0, "b": 101.0, "m": 90.0}, crashes={"a": 1})

    raced = run(track, monkeypatch, "abm", "ab")

    assert raced.failed == {"a": "crash: signal 11"}
    assert set(raced.rounds) == {"b", "m"}


def test_if_all_crash_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = run(Track({"a": 1.0}, crashes={"a": 0}), monkeypatch, "a", "a")

    assert (raced.rounds, list(raced.failed)) == ({}, ["a"])


def test_one_alone_runs_one_heat(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run(Track({"a": 1.0}, noise=0.3), monkeypatch, "a", "a").rounds["a"]) == FIRST_ROUNDS


def test_runs_as_users_call_them_are_kept_by_round_and_a_race_goes_on_until_they_are_settled_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {"a": 100.0, "m": 80.0}
    quiet = CalledTrack(times, {"a": 100.0, "m": 80.0}, called_noise=0.0)
    noisy = CalledTrack(times, {"a": 100.0, "m": 98.0}, called_noise=0.3)

    soon, late = run(quiet, monkeypatch, "am", "a"), run(noisy, monkeypatch, "am", "a")

    for raced in (soon, late):
        assert {name: len(rounds) for name, rounds in raced.called.items()} == {
            name: len(rounds) for name, rounds in raced.rounds.items()
        }
    assert len(soon.called["m"]) < len(late.called["m"])
    assert soon.called["m"][0] == (80.0,) * 3


def test_a_contender_that_fails_leaves_no_runs_as_users_call_them(monkeypatch: pytest.MonkeyPatch) -> None:
    track = CalledTrack({"a": 100.0, "b": 90.0}, {"a": 100.0, "b": 90.0}, called_noise=0.0)
    monkeypatch.setattr(track, "_crashes", {"a": 0})

    raced = run(track, monkeypatch, "ab", "ab")

    assert set(raced.called) == {"b"}


def test_who_is_slower_by_far_leaves_within_the_first_heat(monkeypatch: pytest.MonkeyPatch) -> None:
    track = LeavingTrack({"a": 100.0, "b": 130.0, "m": 90.0, "n": 200.0}, noise=0.01)

    raced = run(track, monkeypatch, "abmn", "ab")

    assert {name: len(rounds) for name, rounds in raced.rounds.items()} == {"a": ENOUGH, "b": 2, "m": ENOUGH, "n": 2}
    assert track.heats == [("a", "b", "m", "n"), ("a", "m")]
