"""Who runs another heat, by rounds that were made up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from collage.decide.races.race import FIRST_ROUNDS, HEAT_ROUNDS, heats_left
from collage.decide.races.staying import LOOKED_AT, Staying
from collage.measure.contenders.interleaved import Rounds

END = FIRST_ROUNDS + HEAT_ROUNDS


def rounds(times_us: Mapping[str, float], noise: float, count: int = FIRST_ROUNDS) -> dict[str, Rounds]:
    """Rounds whose ratios to each other have the given noise, with medians that are as given."""
    random = np.random.default_rng(3)
    found: dict[str, Rounds] = {}
    for name, time_us in times_us.items():
        drawn = random.standard_normal(count)
        factors = np.exp(noise * (drawn - np.median(drawn)))
        found[name] = tuple((float(time_us * factor),) for factor in factors)
    return found


def staying(
    times_us: Mapping[str, float],
    singles: str,
    *,
    called_us: Mapping[str, float] | None = None,
    noise: float = 0.01,
    heats: int = 1,
    end: int = END,
    worth: float = 0.0,
    order_worth: float | None = None,
    kernels: Mapping[str, int] | None = None,
) -> str:
    called = rounds(called_us, noise) if called_us is not None else {}
    rule = Staying(worth=worth, order_worth=worth if order_worth is None else order_worth)
    return "".join(rule(rounds(times_us, noise), called, singles, kernels=kernels, heats=heats, end=end))


def test_a_mixed_plan_that_cannot_be_kept_leaves_however_close_it_is() -> None:
    assert staying({"a": 100.0, "m": 106.0, "n": 95.0}, "a") == "an"
    assert staying({"a": 100.0, "m": 106.0}, "a") == ""


def test_one_that_may_only_be_slow_by_chance_stays() -> None:
    times = {"a": 100.0, "m": 101.0}

    assert staying(times, "a", noise=0.1, end=84) == "am"
    assert staying(times, "a", noise=0.01, end=84) == "am"  # its process may have been a slow one
    assert staying({"a": 100.0, "m": 110.0}, "a", noise=0.01, end=84) == ""


def test_the_fewer_rounds_are_left_the_less_can_still_change() -> None:
    times = {"a": 100.0, "m": 106.0}

    assert staying(times, "a", noise=0.06, end=84) == "am"
    assert staying(times, "a", noise=0.06, end=END) == ""


def test_a_mixed_plan_that_is_slower_as_users_call_it_leaves() -> None:
    bound = {"a": 100.0, "m": 80.0}

    assert staying(bound, "a", called_us={"a": 100.0, "m": 85.0}) == "am"
    assert staying(bound, "a", called_us={"a": 100.0, "m": 110.0}) == ""


def test_the_toolchain_that_is_fastest_as_users_call_it_stays_too() -> None:
    bound, called = {"a": 100.0, "b": 110.0, "m": 80.0}, {"a": 100.0, "b": 90.0, "m": 80.0}

    assert staying(bound, "ab", called_us=called) == "abm"
    assert staying(bound, "ab", called_us=bound) == "am"


def test_each_single_toolchain_and_each_mixed_plan_that_may_be_the_fastest_of_its_kind_stays() -> None:
    times = {"a": 100.0, "b": 101.0, "c": 100.5, "d": 115.0, "j": 99.0, "k": 90.0, "l": 91.0, "m": 90.5}

    assert staying(times, "abcd") == "abcklm"
    assert staying({"a": 100.0, "b": 101.0, "c": 110.0}, "abc", noise=0.15) == "abc"


def test_of_mixed_plans_the_fastest_bound_call_counts() -> None:
    bound, called = {"a": 100.0, "l": 80.0, "m": 90.0}, {"a": 100.0, "l": 90.0, "m": 80.0}

    assert staying(bound, "a", called_us=called) == "al"


def test_without_single_toolchains_mixed_plans_race_each_other() -> None:
    assert staying({"k": 90.0, "l": 120.0, "m": 90.5}, "") == "km"


@pytest.mark.parametrize(("noise", "expected"), [(0.001, ""), (0.2, "ab")])
def test_two_toolchains_run_on_until_the_difference_is_known_or_known_to_be_small(noise: float, expected: str) -> None:
    times = {"a": 100.0, "b": 100.4}

    assert staying(times, "ab", noise=noise, heats=2, end=84) == expected
    assert staying(times, "ab", noise=noise, heats=1, end=84) == "ab"


def test_two_toolchains_stop_as_soon_as_next_to_nothing_is_to_be_gained() -> None:
    times = {"a": 100.0, "b": 101.5}

    assert staying(times, "ab", noise=0.04, end=84) == "ab"
    assert staying(times, "ab", noise=0.04, end=84, worth=0.02) == ""


def test_single_toolchains_that_seem_equally_fast_run_two_heats() -> None:
    ran = rounds({"a": 100.0, "b": 100.2}, 0.005)

    assert Staying()(ran, {}, "ab", heats=1, end=84) == ["a", "b"]
    longer = rounds({"a": 100.0, "b": 100.2}, 0.04, 18)
    assert Staying()(longer, {}, "ab", heats=2, end=84) == []
    assert Staying(order_worth=0.005)(longer, {}, "ab", heats=2, end=84) == ["a", "b"]


def test_which_single_toolchain_is_the_fastest_may_be_worth_less_than_which_mixed_plan_is() -> None:
    times = {"a": 100.0, "b": 101.5, "l": 90.0, "m": 91.3}

    assert staying(times, "ab", noise=0.04, end=84, worth=0.001) == "ablm"
    assert staying(times, "ab", noise=0.04, end=84, worth=0.001, order_worth=0.02) == "alm"


def test_a_mixed_plan_that_is_likely_to_save_next_to_nothing_leaves_and_one_that_may_save_much_stays() -> None:
    assert staying({"a": 100.0, "m": 98.5}, "a", noise=0.001, end=84) == "am"
    assert staying({"a": 100.0, "m": 98.5}, "a", noise=0.001, end=84, worth=0.05) == ""
    assert staying({"a": 100.0, "m": 85.0}, "a", noise=0.05, end=84, worth=0.05) == "am"


def test_of_several_mixed_plans_those_stay_of_which_enough_is_to_be_expected() -> None:
    times = {"a": 100.0, "l": 90.0, "m": 90.5}

    assert staying(times, "a", end=84, worth=0.001) == "alm"
    assert staying(times, "a", end=84, worth=0.02) == "al"
    assert staying(times, "a", end=84, worth=0.2) == ""


@pytest.mark.parametrize(
    ("kernels", "expected"), [((2, 2), "mn"), ((2, 3), ""), ((3, 2), ""), ((4, 3), ""), (None, "mn")]
)
def test_of_mixed_plans_that_are_as_good_as_equal_that_of_the_fewest_kernels_runs_on(
    kernels: tuple[int, int] | None, expected: str
) -> None:
    counts = None if kernels is None else dict(zip("mn", kernels, strict=True))

    assert staying({"m": 99.5, "n": 100.0}, "", kernels=counts, noise=0.003, worth=0.005, end=84) == expected


def test_a_mixed_plan_of_more_kernels_stays_if_it_may_be_faster_by_enough_to_be_kept() -> None:
    times = {"m": 100.0, "n": 99.0}

    assert staying(times, "", kernels={"m": 2, "n": 4}, noise=0.03, worth=0.005, end=84) == "mn"
    assert staying(times, "", kernels={"m": 2, "n": 4}, noise=0.003, worth=0.005, end=84) == ""


def test_while_toolchains_may_be_as_fast_the_number_of_kernels_decides_nothing() -> None:
    times = {"a": 100.0, "m": 93.0, "n": 92.5}

    assert staying(times, "a", kernels={"m": 2, "n": 3}, noise=0.003, worth=0.005, end=84) == "amn"


def test_who_was_faster_in_two_of_six_rounds_stays_though_most_rounds_say_it_is_slower_by_far() -> None:
    """The interval of the ratio is 0.955 to 1.26, about 1.205: it reaches farther down than up."""
    ratios = (0.95, 0.96, 1.2, 1.21, 1.22, 1.3)
    ran = {"a": ((100.0,),) * 6, "b": tuple((100 * ratio,) for ratio in ratios)}

    assert Staying()(ran, {}, "ab", heats=1, end=84) == ["a", "b"]
    assert Staying()({name: each * 4 for name, each in ran.items()}, {}, "ab", heats=1, end=84) == []
    assert Staying()(ran, {}, "ab", heats=1, end=END) == []  # a single heat would hardly change it


def test_single_toolchains_leave_once_every_mixed_plan_that_stays_is_faster_by_far() -> None:
    assert staying({"a": 140.0, "b": 141.0, "l": 100.0, "m": 100.5}, "ab") == "lm"
    assert staying({"a": 124.0, "b": 141.0, "l": 100.0, "m": 100.5}, "ab") == "alm"
    assert staying({"a": 140.0, "l": 100.0, "m": 112.0}, "a", worth=0.0, noise=0.06, end=84) == "alm"  # l alone is
    assert staying({"a": 130.0, "l": 100.0, "m": 100.5}, "a", noise=0.1, end=84) == "alm"
    assert staying({"a": 140.0, "m": 100.0}, "a") == ""


def test_single_toolchains_stay_if_one_that_may_be_the_fastest_was_as_fast_in_some_rounds() -> None:
    uneven = (98.0, 99.0, 135.0, 136.0, 137.0, 150.0)
    ran = {"a": ((140.0,),) * 6, "b": tuple((each,) for each in uneven), "m": ((100.0,),) * 6}

    assert Staying()(ran, {}, "ab", heats=1, end=84) == ["a", "b", "m"]
    assert Staying()({name: ran[name] for name in "am"}, {}, "a", heats=1, end=84) == []


def test_single_toolchains_stay_that_are_not_slower_by_far_as_users_call_them() -> None:
    bound = {"a": 140.0, "l": 100.0, "m": 100.5}

    assert staying(bound, "a", called_us={"a": 120.0, "l": 100.0, "m": 100.5}) == "alm"
    assert staying(bound, "a", called_us=bound) == "lm"


def test_heats_that_are_left_are_of_those_that_usually_stay() -> None:
    assert heats_left(elapsed_s=36.0, turns=36, limit_s=40.0) == 1
    assert heats_left(elapsed_s=3.6, turns=36, limit_s=40.0) == 1 + 10
    assert heats_left(elapsed_s=50.0, turns=36, limit_s=40.0) == 1


def far_slower(bound_us: Mapping[str, float], singles: str, called_us: Mapping[str, float] | None = None) -> str:
    """Who leaves after two rounds, each as given."""
    ran, called = (
        {name: ((time_us,),) * LOOKED_AT for name, time_us in (way or {}).items()} for way in (bound_us, called_us)
    )
    return "".join(sorted(Staying().leaving(ran, called, singles)))


def test_who_is_slower_by_far_in_every_round_leaves_at_once() -> None:
    assert far_slower({"a": 100.0, "b": 124.0, "c": 126.0, "m": 99.0, "n": 124.0}, "abc") == "cn"


def test_a_single_toolchain_is_compared_with_single_toolchains() -> None:
    """The fastest of them is needed, however fast a mixed plan is."""
    assert far_slower({"a": 120.0, "b": 130.0, "m": 100.0, "n": 130.0}, "ab") == "n"
    assert far_slower({"a": 200.0, "m": 100.0}, "a") == ""


def test_only_the_fastest_toolchain_stays_if_a_mixed_plan_is_faster_by_far_than_all() -> None:
    bound_us = {"a": 200.0, "b": 205.0, "c": 210.0, "m": 100.0}
    assert far_slower(bound_us, "abc") == "bc"
    assert far_slower(bound_us, "abc", {"a": 220.0, "b": 200.0, "c": 205.0, "m": 100.0}) == "c"
    assert far_slower(bound_us, "abc", {**bound_us, "c": 120.0}) == ""


def test_who_is_as_fast_as_the_others_in_one_round_stays() -> None:
    ran = {"a": ((100.0,), (100.0,)), "b": ((180.0,), (101.0,))}

    assert Staying().leaving(ran, {}, "ab") == set()


def test_who_is_fast_in_one_way_of_calling_stays() -> None:
    bound_us = {"a": 100.0, "b": 180.0}

    assert far_slower(bound_us, "ab", {"a": 300.0, "b": 200.0}) == ""
    assert far_slower(bound_us, "ab", bound_us) == "b"


def test_nobody_leaves_after_another_number_of_rounds() -> None:
    for count in (1, 3):
        ran = {"a": ((100.0,),) * count, "b": ((200.0,),) * count}
        assert Staying().leaving(ran, {}, "ab") == set()


def test_without_single_toolchains_plans_are_compared_with_each_other() -> None:
    assert far_slower({"m": 100.0, "n": 150.0}, "") == "n"
    assert far_slower({}, "") == ""
