"""Ratios of contenders that ran together, beside a third, or in different minutes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage.decide.timed import Ratios, Timed


def timed(name: str, ratio: float, speeds: np.ndarray[tuple[int], np.dtype[np.float64]], since: int, end: int) -> Timed:
    """A contender that takes a ratio of 1 ms, in some of the rounds of a machine whose speed changes."""
    rounds_us = tuple((1000.0 * ratio * float(speed),) * 3 for speed in speeds[since:end])
    called_us = tuple(tuple(2 * us for us in each) for each in rounds_us)
    return Timed(
        name=name, single=False, kernels=1, toolchains=1, rounds_us=rounds_us, called_us=called_us, first_round=since
    )


@pytest.mark.parametrize("seed", range(20))
def test_who_ran_beside_a_third_is_compared_by_it_whatever_the_machine_did_meanwhile(seed: int) -> None:
    random = np.random.default_rng(seed)
    speeds = np.exp(np.cumsum(random.normal(0.0, 0.2, 30)))
    truth = dict(zip("abcd", np.exp(random.normal(0.0, 0.5, 4)), strict=True))
    spans = {"a": (0, 6), "b": (0, 18), "c": (6, 24), "d": (18, 30)}
    contenders = [timed(name, float(truth[name]), speeds, *span) for name, span in spans.items()]
    by_name = {each.name: each for each in contenders}
    between = Ratios(contenders, seed)

    for one in "abcd":
        for other in "abcd":
            assert between.are_comparable(by_name[one], by_name[other])
            for ratio in (
                between(by_name[one], by_name[other]),
                between.as_called(by_name[one], by_name[other]),
            ):
                assert ratio.value == pytest.approx(truth[one] / truth[other])
                assert ratio.low <= ratio.value * (1 + 1e-9)
                assert ratio.value <= ratio.high * (1 + 1e-9)


def test_a_step_beside_a_third_adds_its_doubt() -> None:
    random = np.random.default_rng(0)

    def noisy(name: str, since: int, end: int) -> Timed:
        rounds_us = tuple((float(us),) for us in 1000.0 * np.exp(random.normal(0.0, 0.05, end - since)))
        return Timed(name=name, single=False, kernels=1, toolchains=1, rounds_us=rounds_us, first_round=since)

    first, third, last = contenders = noisy("a", 0, 12), noisy("b", 0, 24), noisy("c", 12, 24)
    between = Ratios(contenders, 0)
    parts, whole = (between(first, third), between(third, last)), between(first, last)

    assert whole.value == pytest.approx(math.prod(part.value for part in parts))
    widths = [math.log(each.high / each.low) for each in (*parts, whole)]
    assert max(widths[:2]) < widths[2] < sum(widths[:2])


def test_who_has_no_runs_as_users_call_them_leads_nowhere() -> None:
    speeds = np.ones(24)
    first, last = timed("a", 1.0, speeds, 0, 12), timed("c", 2.0, speeds, 12, 24)
    third = Timed(name="b", single=False, kernels=1, toolchains=1, rounds_us=((1500.0,),) * 24)

    between = Ratios([first, third, last], 0)

    assert between(first, last).value == pytest.approx(0.5)
    assert between.as_called(first, last).value == pytest.approx(0.5)  # over the rounds that are nearest in time
    assert between.are_comparable(first, last)


def test_who_ran_apart_is_not_comparable() -> None:
    speeds = np.ones(24)
    first, last = timed("a", 1.0, speeds, 0, 12), timed("c", 2.0, speeds, 12, 24)

    assert not Ratios([first, last], 0).are_comparable(first, last)
