"""Replays of races: what the benchmark of rules draws, races and keeps."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.race_rules import (
    RACES,
    VARIANTS,
    Draw,
    Variant,
    quick_interval,
    quick_intervals,
    raced,
    resampled,
    synthetic,
    to_the_end,
)
from benchmarks.recorded_races import Recorded, read
from collage.decide.races.race import FIRST_ROUNDS
from collage.decide.races.staying import LOOKED_AT, Staying
from collage.measure.contenders.interleaved import Rounds
from collage.measure.statistics import ratio_interval


def rounds(median_us: float, noise: float = 0.01, count: int = 18, seed: int = 0) -> Rounds:
    random = np.random.default_rng(seed)
    return tuple((float(median_us * np.exp(noise * drawn)),) for drawn in random.standard_normal(count))


def recorded(times_us: dict[str, float], singles: str, noise: float = 0.01) -> Recorded:
    found = {name: rounds(time, noise, seed=seed) for seed, (name, time) in enumerate(times_us.items())}
    return Recorded(rounds=found, called=found, singles=frozenset(singles))


def test_the_best_mixed_plan_of_a_synthetic_race_truly_takes_what_was_wanted() -> None:
    race = recorded({"a": 100.0, "b": 120.0, "m": 300.0, "n": 70.0}, "ab")

    draw = synthetic(race, 0.9, np.random.default_rng(0))

    best = min(draw.true_us[name] for name in "ab")
    assert min(draw.true_us[name] for name in "mn") == pytest.approx(0.9 * best)


@pytest.mark.parametrize("variant", [VARIANTS["before"], Variant(Staying(), limit_s=1e9)])
def test_who_is_far_faster_is_kept_in_fewer_turns_than_a_race_to_the_end_takes(variant: Variant) -> None:
    race = recorded({"a": 100.0, "m": 60.0, "n": 95.0}, "a")
    draw = resampled(race, np.random.default_rng(0))

    ended, found = (raced(draw, each) for each in (Variant(to_the_end, limit_s=1e9), variant))

    assert ended.kept == found.kept == "m"
    assert found.turns < ended.turns


def test_a_race_in_which_no_mixed_plan_may_be_kept_ends_after_its_first_heat() -> None:
    draw = resampled(recorded({"a": 100.0, "m": 112.0, "n": 110.0}, "a"), np.random.default_rng(0))

    found = raced(draw, Variant(Staying(), limit_s=1e9))

    assert (found.kept, found.turns, found.starts) == ("a", 3 * FIRST_ROUNDS, 3)


def test_who_is_slower_by_far_takes_no_more_turns_than_those_that_are_looked_at() -> None:
    draw = resampled(recorded({"a": 100.0, "m": 160.0, "n": 110.0}, "a"), np.random.default_rng(0))

    found = raced(draw, Variant(Staying(), limit_s=1e9))

    assert (found.kept, found.turns, found.starts) == ("a", 2 * FIRST_ROUNDS + LOOKED_AT, 3)


def test_the_same_draw_gives_every_rule_the_same_samples() -> None:
    draw = resampled(recorded({"a": 100.0, "m": 90.0}, "a", noise=0.1), np.random.default_rng(0))

    assert isinstance(draw, Draw)
    assert draw.heat(["a", "m"], 0, 0, 6)[0]["m"] == draw.heat(["m"], 0, 0, 6)[0]["m"]


def test_quick_intervals_are_those_of_the_product_but_for_resampling() -> None:
    ours, theirs = rounds(90.0, 0.1, count=40, seed=1), rounds(100.0, 0.1, count=40, seed=2)

    quick, exact = quick_interval(ours, theirs, seed=0), ratio_interval(ours, theirs, seed=0)

    assert quick.value == pytest.approx(exact.value)
    assert (quick.low, quick.high) == pytest.approx((exact.low, exact.high), abs=0.02)


def test_the_committed_races_can_be_replayed() -> None:
    race = read(RACES)[0]
    assert 0 < len(race.singles) < len(race.rounds)

    with quick_intervals():
        draw = resampled(race, np.random.default_rng(0))
        found = raced(draw, Variant(Staying()))

    assert found.kept in draw.names
