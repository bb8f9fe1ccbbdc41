from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import decide
from collage.decide.timed import Timed
from collage.store import block_times_us
from collage_core.contract import Block


def timed(name: str, base_us: float, *, single: bool, rounds: int = 12, noise: float = 0.01, kernels: int = 1) -> Timed:
    random = np.random.default_rng(sum(map(ord, name)))
    return Timed(
        name=name,
        single=single,
        kernels=kernels,
        toolchains=1 if single else 2,
        rounds_us=tuple(tuple(base_us * (1 + noise * random.standard_normal(9))) for _ in range(rounds)),
        targets=(name,) if single else ("a", "b"),
    )


def test_a_clearly_faster_mixed_plan_displaces_the_best_single_toolchain() -> None:
    decision = decide(
        [timed("a", 100.0, single=True), timed("b", 130.0, single=True), timed("mix", 80.0, single=False)], seed=0
    )

    assert (decision.winner, decision.incumbent) == ("mix", "a")
    assert decision.ratios["mix"].high < 0.85
    assert "0.8" in decision.reason


def test_rounds_are_compared_by_their_calibration_and_the_race_as_costs_are() -> None:
    """In the second round the machine was at half the speed of the first, in the third at a quarter."""
    rounds_us = ((99.0, 100.0, 900.0), (190.0, 200.0, 210.0), (440.0,))
    contender = dataclasses.replace(timed("a", 1.0, single=True), rounds_us=rounds_us)

    calibrated = dataclasses.replace(contender, calibrations_us=(10.0, 20.0, 40.0))

    assert calibrated.usual_us(20.0) == 200.0  # every round took ten times what the calibration kernel did
    for usual_us in (10.0, 15.0, 40.0):
        assert calibrated.usual_us(usual_us) == pytest.approx(
            block_times_us([200.0], [Block(samples=1, calibration_us=20.0)], usual_us)[0]
        )
    assert calibrated.usual_us(None) == contender.usual_us(10.0) == contender.time_us == 200.0


def test_by_another_percentile_the_plan_that_is_seldom_slow_wins() -> None:
    """One in five runs of the mixed plan takes five times as long; usually it is a tenth faster."""
    random = np.random.default_rng(3)

    def runs(us: float, slow: bool) -> tuple[tuple[float, ...], ...]:
        factors = np.where(np.arange(20) % 5 == 0, 5.0 if slow else 1.0, 1.0)
        return tuple(tuple(us * factors * random.normal(1, 0.002, 20)) for _ in range(12))

    single = dataclasses.replace(timed("single", 100.0, single=True), rounds_us=runs(100.0, slow=False))
    mixed = dataclasses.replace(timed("mixed", 90.0, single=False), rounds_us=runs(90.0, slow=True))

    def winner(percent: float) -> str:
        return decide([dataclasses.replace(each, percent=percent) for each in (single, mixed)], 0).winner

    assert (winner(50.0), winner(60.0), winner(95.0)) == ("mixed", "mixed", "single")
    by_95 = decide([dataclasses.replace(each, percent=95.0) for each in (single, mixed)], 0).ratios["mixed"]
    assert 4.4 < by_95.low <= by_95.value <= by_95.high < 4.6


def with_calls(contender: Timed, factor: float) -> Timed:
    """The contender, its runs as users call them slower by a factor."""
    called = tuple(tuple(us * factor for us in samples) for samples in contender.rounds_us)
    return dataclasses.replace(contender, called_us=called)


@pytest.mark.guards(
    "a mixed plan is faster when its memory is bound, and not as users call it",
    "the single toolchain is kept",
    area="toolchains",
)
def test_a_plan_that_is_slower_as_users_call_it_does_not_displace_the_incumbent() -> None:
    single, mix = timed("a", 100.0, single=True), timed("mix", 80.0, single=False)

    copied = decide([with_calls(single, 1.0), with_calls(mix, 1.5)], seed=0)
    lent = decide([with_calls(single, 1.0), with_calls(mix, 1.1)], seed=0)

    assert copied.winner == "a"
    assert copied.ratios["mix"].high < 1.0 < copied.called["mix"].low
    assert "faster only when its memory is bound" in copied.reason
    assert lent.winner == "mix"
    assert lent.called["mix"].high < 1.0


def test_runs_as_users_call_them_are_compared_with_the_single_toolchain_that_is_fastest_so() -> None:
    contenders = [
        with_calls(timed("a", 100.0, single=True), 2.0),
        with_calls(timed("b", 110.0, single=True), 1.0),
        with_calls(timed("mix", 80.0, single=False), 1.5),
    ]

    decision = decide(contenders, seed=0)

    assert (decision.winner, decision.incumbent, decision.incumbent_as_called) == ("a", "a", "b")
    assert decision.called["mix"].low > 1.0


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


@pytest.mark.parametrize(
    ("simple_us", "noise", "winner"),
    [
        (81.0, 0.2, "simple"),
        (81.0, 0.001, "many"),  # one percent is more than the noise
        (84.0, 0.2, "many"),  # whatever the noise, that is too much
        (79.0, 0.2, "simple"),
    ],
)
def test_of_mixed_plans_that_cannot_be_told_apart_that_of_fewer_kernels_is_kept(
    simple_us: float, noise: float, winner: str
) -> None:
    many = timed("many", 80.0, single=False, kernels=4, noise=noise)
    factor = simple_us / 80.0
    backwards = tuple(tuple(us * factor for us in each) for each in many.rounds_us[::-1])
    simple = dataclasses.replace(many, name="simple", kernels=2, rounds_us=backwards)

    decision = decide([timed("a", 100.0, single=True), many, simple], seed=0)

    assert decision.winner == winner
    assert ("so simple is kept, which has fewer kernels" in decision.reason) == (winner == "simple" and simple_us > 80)


@pytest.mark.parametrize(("left_after", "winner"), [(6, "simple"), (3, "many")])
def test_a_plan_of_fewer_kernels_that_left_is_kept_unless_it_left_before_the_incumbent(
    left_after: int, winner: str
) -> None:
    many = timed("many", 80.0, single=False, kernels=4, noise=0.05)
    simple = timed("simple", 80.0, single=False, kernels=2, noise=0.05, rounds=left_after)
    incumbent = timed("a", 200.0, single=True, rounds=6)

    assert decide([incumbent, many, simple], seed=0).winner == winner


def test_of_mixed_plans_of_as_many_kernels_the_fastest_is_kept_whatever_toolchains_they_need() -> None:
    fast = timed("fast", 80.0, single=False, kernels=2, noise=0.2)
    slower = tuple(tuple(us + 0.5 for us in each) for each in fast.rounds_us[::-1])
    other = dataclasses.replace(fast, name="other", toolchains=1, rounds_us=slower)

    assert decide([timed("a", 100.0, single=True, noise=0.01), other, fast], seed=0).winner == "fast"


def test_a_single_toolchain_of_fewer_kernels_is_not_taken_for_a_faster_one() -> None:
    fast = timed("fast", 100.0, single=True, kernels=3, noise=0.05)
    slower = dataclasses.replace(
        fast, name="slower", kernels=1, rounds_us=tuple(tuple(us + 0.5 for us in each) for each in fast.rounds_us[::-1])
    )

    assert decide([fast, slower], seed=0).winner == "fast"


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


def test_a_plan_of_one_toolchain_with_pins_to_others_is_not_said_to_be_alone() -> None:
    pinned = dataclasses.replace(timed("a", 100.0, single=True), toolchains=2)

    assert decide([pinned], seed=0).reason.startswith("a with what is pinned to others is kept: ")


def test_who_left_early_is_compared_over_the_rounds_it_ran() -> None:
    early = Timed(name="early", single=True, kernels=1, toolchains=1, rounds_us=((50.0,) * 3,) * 3)
    stayed = Timed(
        name="stayed", single=True, kernels=1, toolchains=1, rounds_us=((40.0,) * 3,) * 3 + ((100.0,) * 3,) * 9
    )

    decision = decide([early, stayed], seed=0)

    assert (decision.winner, decision.incumbent) == ("stayed", "stayed")
    assert decision.ratios["early"].value == 1.25


def test_who_joined_late_is_compared_over_the_rounds_since_then() -> None:
    """The machine was twice as fast before, so by all of its rounds the incumbent would be faster."""
    incumbent = Timed(
        name="a", single=True, kernels=1, toolchains=1, rounds_us=((50.0,) * 3,) * 12 + ((100.0,) * 3,) * 6
    )
    before = Timed(name="mixed-1", single=False, kernels=2, toolchains=2, rounds_us=((45.0,) * 3,) * 12)
    late = Timed(name="mixed-2", single=False, kernels=2, toolchains=2, rounds_us=((80.0,) * 3,) * 6, first_round=12)

    decision = decide([incumbent, before, late], seed=0)

    assert decision.winner == "mixed-2"  # the other left when its chance was gone
    assert {name: ratio.value for name, ratio in decision.ratios.items()} == {"a": 1.0, "mixed-1": 0.9, "mixed-2": 0.8}


def test_who_joined_when_another_had_left_is_compared_with_its_last_rounds() -> None:
    """The incumbent of both times turned out wrong; the machine was half as fast at first."""
    before = Timed(name="a", single=True, kernels=1, toolchains=1, rounds_us=((200.0,) * 3,) * 2 + ((100.0,) * 3,) * 3)
    late = Timed(
        name="b", single=True, kernels=1, toolchains=1, rounds_us=((80.0,) * 3,) * 2 + ((60.0,) * 3,), first_round=5
    )

    decision = decide([before, late], seed=0)

    assert (decision.winner, decision.incumbent) == ("b", "b")
    assert decision.ratios["a"].value == pytest.approx(100 / 80)


def test_a_mixed_plan_displaces_nobody_beside_whom_it_was_not_timed() -> None:
    """The machine was half as fast at first, so the plan that joined later is the slower one."""
    single = Timed(name="b", single=True, kernels=1, toolchains=1, rounds_us=((200.0,) * 3,) * 3)
    late = Timed(name="mixed", single=False, kernels=2, toolchains=2, rounds_us=((110.0,) * 3,) * 6, first_round=12)

    decision = decide([single, late], seed=0)

    assert (decision.winner, decision.incumbent) == ("b", "b")
    assert decision.reason == "b alone is kept: no mixed plan that is left was timed beside it"


@pytest.mark.guards(
    "the plan turns out wrong beside which alone others joined a race",
    "the best mixed plan that was timed beside a toolchain is kept",
    area="toolchains",
)
@pytest.mark.parametrize("late", [[(6, 18)], [(6, 30), (18, 30)]])
def test_without_what_linked_plans_that_joined_to_the_incumbent_the_best_of_the_others_is_kept(
    late: list[tuple[int, int]],
) -> None:
    def ran(name: str, us: float, span: tuple[int, int], *, single: bool = False) -> Timed:
        rounds_us = ((us,) * 3,) * (span[1] - span[0])
        return Timed(name=name, single=single, kernels=2, toolchains=2, rounds_us=rounds_us, first_round=span[0])

    first = [ran("a", 200.0, (0, 6), single=True), ran("mixed-2", 85.0, (0, 6)), ran("mixed-3", 90.0, (0, 6))]
    link = ran("mixed-1", 80.0, (0, 18))
    joined = [ran(f"late-{number}", 78.0 - number, span) for number, span in enumerate(late)]
    assert decide([*first, link, *joined], seed=0).winner == joined[-1].name

    assert decide([*first, *joined], seed=0).winner == "mixed-2"
    assert decide([*first, link, *joined[1:]], seed=0).winner == "mixed-1"


def test_mixed_plans_are_compared_over_the_rounds_that_they_ran_together() -> None:
    """In the six rounds of the toolchain the slower one of them was lucky."""
    single = Timed(name="b", single=True, kernels=1, toolchains=1, rounds_us=((200.0,) * 3,) * 6)
    lucky, faster = (
        Timed(name=name, single=False, kernels=2, toolchains=2, rounds_us=((first,) * 3,) * 6 + ((later,) * 3,) * 12)
        for name, first, later in (("mixed-1", 80.0, 90.0), ("mixed-2", 82.0, 85.0))
    )

    assert decide([single, lucky, faster], seed=0).winner == "mixed-2"


def test_plans_without_a_single_toolchain_are_compared_over_the_rounds_that_all_ran() -> None:
    first = Timed(
        name="mixed-1", single=False, kernels=2, toolchains=2, rounds_us=((50.0,) * 3,) * 12 + ((100.0,) * 3,) * 6
    )
    late = Timed(name="mixed-2", single=False, kernels=2, toolchains=2, rounds_us=((80.0,) * 3,) * 6, first_round=12)

    assert decide([first, late], seed=0).winner == "mixed-2"


def test_a_contender_that_went_on_has_the_rounds_of_both_times() -> None:
    first = with_calls(timed("a", 100.0, single=True, rounds=6), 1.1)
    first = dataclasses.replace(first, calibrations_us=(10.0,) * 6, parts_us=({"k0000": 100.0},) * 6)
    later = dataclasses.replace(first, first_round=6, parts_us=({"k0000": 90.0},) * 6)

    both = first.then(later)

    assert both.rounds_us == first.rounds_us * 2
    assert both.called_us == first.called_us * 2
    assert both.calibrations_us == (10.0,) * 12
    assert both.parts_us == first.parts_us  # the time in place is of the first rounds
    assert (both.first_round, both.end) == (0, 12)
    with pytest.raises(ValueError, match="a ended before round 6, and went on with 12"):
        first.then(dataclasses.replace(later, first_round=12))


def test_a_single_toolchain_that_left_early_is_the_incumbent_if_no_other_is_left() -> None:
    early = timed("early", 100.0, single=True, rounds=3)

    decision = decide([early, timed("mix", 80.0, single=False)], seed=0)

    assert (decision.winner, decision.incumbent) == ("mix", "early")


def test_of_single_toolchains_that_cannot_be_told_apart_the_preferred_one_is_kept_and_the_reason_says_so() -> None:
    first = timed("a", 100.0, single=True, noise=0.05)
    near = [first, dataclasses.replace(first, name="b", targets=("b",), rounds_us=first.rounds_us[::-1])]
    plain = decide(near, seed=0)
    other = "b" if plain.winner == "a" else "a"

    decision = decide(near, seed=0, tie_breaking=TieBreaking.parse(other))

    assert (decision.winner, decision.incumbent) == (other, other)
    assert f"; {plain.winner} and {other} cannot be told apart (ratio " in decision.reason
    assert decision.reason.endswith(f"so --prefer decided for {other}")
    assert decide(near, seed=0, tie_breaking=TieBreaking.parse(plain.winner)) == plain


def test_a_preference_says_nothing_where_measurements_decide() -> None:
    clear = [timed("a", 100.0, single=True), timed("b", 103.0, single=True, noise=0.001)]
    far = [timed("a", 100.0, single=True, noise=0.9), timed("b", 115.0, single=True, noise=0.9)]

    for contenders in (clear, far):
        plain = decide(contenders, seed=0)
        for name in "ab":
            assert decide(contenders, seed=0, tie_breaking=TieBreaking.parse(name)) == plain


def test_a_mixed_plan_still_has_to_beat_the_preferred_toolchain_beyond_doubt() -> None:
    contenders = [timed("a", 100.0, single=True), timed("mix", 99.0, single=False)]

    assert decide(contenders, seed=0, tie_breaking=TieBreaking.parse("b")).winner == "a"


def test_a_mixed_plan_that_beats_the_preferred_toolchain_alone_is_not_kept() -> None:
    fast, slow = ((98.0,), (102.0,)) * 6, ((104.0,), (100.0,)) * 6
    mixed = tuple((0.985 * us,) for (us,) in slow)
    contenders = [
        dataclasses.replace(timed(name, 1.0, single=name != "mix"), rounds_us=rounds_us)
        for name, rounds_us in (("a", fast), ("b", slow), ("mix", mixed))
    ]

    decision = decide(contenders, seed=0, tie_breaking=TieBreaking.parse("b"))

    assert (decision.winner, decision.incumbent) == ("b", "b")
    assert decision.ratios["mix"].high < 0.99
    assert decide(contenders[1:], seed=0).winner == "mix"


def test_of_mixed_plans_that_both_win_the_preferred_one_is_taken() -> None:
    first = timed("one", 80.0, single=False, noise=0.2)
    second = Timed(
        name="two",
        single=False,
        kernels=1,
        toolchains=2,
        rounds_us=tuple(tuple(us + 0.5 for us in each) for each in first.rounds_us),
        targets=("b", "c"),
    )
    contenders = [timed("a", 100.0, single=True, noise=0.01), first, second]

    assert decide(contenders, seed=0).winner == "one"
    assert decide(contenders, seed=0, tie_breaking=TieBreaking.parse("b,c")).winner == "two"


@pytest.mark.parametrize("prefer", [None, "x"])
def test_where_nothing_is_preferred_the_number_of_targets_decides_nothing(prefer: str | None) -> None:
    fast = dataclasses.replace(timed("fast", 80.0, single=False, noise=0.2), targets=("b", "c"))
    slower = tuple(tuple(us + 0.5 for us in each) for each in fast.rounds_us)
    one_target = dataclasses.replace(fast, name="one target", rounds_us=slower, targets=("b",))
    contenders = [timed("a", 100.0, single=True, noise=0.01), one_target, fast]

    decision = decide(contenders, seed=0, tie_breaking=TieBreaking.parse(prefer))

    assert decision.winner == "fast"
    assert "--prefer" not in decision.reason
