from __future__ import annotations

import numpy as np

from collage_core.pipeline.decision import Timed, decide


def timed(name: str, base_us: float, *, single: bool, rounds: int = 12, noise: float = 0.01, kernels: int = 1) -> Timed:
    random = np.random.default_rng(sum(map(ord, name)))
    return Timed(
        name=name,
        single=single,
        kernels=kernels,
        toolchains=1 if single else 2,
        rounds_us=tuple(tuple(base_us * (1 + noise * random.standard_normal(9))) for _ in range(rounds)),
    )


def test_a_clearly_faster_mixed_plan_displaces_the_best_single_toolchain() -> None:
    decision = decide(
        [timed("a", 100.0, single=True), timed("b", 130.0, single=True), timed("mix", 80.0, single=False)], seed=0
    )

    assert (decision.winner, decision.incumbent) == ("mix", "a")
    assert decision.ratios["mix"].high < 0.85
    assert "0.8" in decision.reason


def test_a_gain_of_one_percent_is_not_worth_a_second_toolchain() -> None:
    decision = decide([timed("a", 100.0, single=True), timed("mix", 99.0, single=False)], seed=0)

    assert decision.winner == "a"
    assert "not faster beyond doubt" in decision.reason


def test_a_gain_within_the_noise_does_not_displace_the_incumbent() -> None:
    decision = decide([timed("a", 100.0, single=True, noise=0.4), timed("mix", 95.0, single=False, noise=0.4)], seed=0)

    assert decision.winner == "a"


def test_ties_fall_to_the_plan_with_fewer_kernels() -> None:
    one = timed("z", 100.0, single=True, noise=0.0)
    many = timed("a", 100.0, single=True, noise=0.0, kernels=5)

    assert decide([many, one], seed=0).winner == "z"


def test_a_mixed_plan_wins_unopposed_where_no_single_toolchain_runs_the_model() -> None:
    decision = decide([timed("mix", 80.0, single=False)], seed=0)

    assert decision.winner == "mix"
    assert "no single toolchain" in decision.reason


def test_the_same_samples_give_the_same_decision() -> None:
    contenders = [timed("a", 100.0, single=True), timed("mix", 97.0, single=False)]

    assert decide(contenders, seed=3) == decide(list(contenders), seed=3)


def test_mixed_plans_that_failed_are_the_reason_for_a_lack_of_them() -> None:
    alone = [timed("a", 100.0, single=True)]

    assert decide(alone, seed=0, failed=["mixed-1"]).reason == "a alone is kept: mixed-1 could not be built or run"
    assert "found no mixed plan" in decide(alone, seed=0).reason


def test_who_left_early_is_compared_over_the_rounds_it_ran() -> None:
    early = Timed(name="early", single=True, kernels=1, toolchains=1, rounds_us=((50.0,) * 3,) * 3)
    stayed = Timed(
        name="stayed", single=True, kernels=1, toolchains=1, rounds_us=((40.0,) * 3,) * 3 + ((100.0,) * 3,) * 9
    )

    decision = decide([early, stayed], seed=0)

    assert (decision.winner, decision.incumbent) == ("stayed", "stayed")
    assert decision.ratios["early"].value == 1.25


def test_a_single_toolchain_that_left_early_is_the_incumbent_if_no_other_is_left() -> None:
    early = timed("early", 100.0, single=True, rounds=3)

    decision = decide([early, timed("mix", 80.0, single=False)], seed=0)

    assert (decision.winner, decision.incumbent) == ("mix", "early")
