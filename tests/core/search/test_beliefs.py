"""Beliefs against the posterior of a linear model, computed at once with NumPy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from collage_core.search import SearchCandidate
from collage_core.search import beliefs as module
from collage_core.search.beliefs import GUESSED, PROFILED, Beliefs, Doubt, Joint, TargetBelief
from collage_core.search.normal import Fit, Normal


def zero(nodes: int) -> float:
    return 0.0


def drawn_us(beliefs: Beliefs, target: str, nodes: int) -> list[float]:
    return [float(us) for us in beliefs.drawn_us([candidate(target, nodes)])[:, 0]]


def candidate(target: str, nodes: int) -> SearchCandidate:
    return SearchCandidate(nodes=nodes, target=target, key=str(nodes))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_learnt_one_by_one_is_the_posterior_of_a_linear_model(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    count = 6
    times = [rng.uniform(1, 100) for _ in range(count)]
    kinds = [rng.choice("xyz") for _ in range(count)]
    doubts = [rng.choice([PROFILED, GUESSED, Doubt(node=0.3, kind=0.0, target=0.1)]) for _ in range(count)]
    pairs = rng.sample([(one, other) for one in range(count) for other in range(one + 1, count)], 4)
    joints = [Joint(nodes=pair, change_us=rng.uniform(-20, 20), doubt_us=rng.uniform(1, 20)) for pair in pairs]
    belief = TargetBelief(times, kinds, doubts, joints)
    seen = [(rng.randrange(1, 1 << count), rng.uniform(0, 1e5), rng.uniform(10, 400), module.NOISE) for _ in range(5)]
    monkeypatch.setattr(module, "_SURPRISE", math.inf)  # the doubts stay as they are
    for each in seen:
        belief = belief.learning([each])

    # the same by the normal equations: prior precision plus that of all measurements
    prior = np.diag(
        [
            *((d.node * t) ** 2 for d, t in zip(doubts, times, strict=True)),
            *(joint.doubt_us**2 for joint in joints),
            module._KERNEL_SD_US**2,
            module._SD_US_PER_BYTE**2,
        ]
    )
    for one in range(count):
        for other in range(count):
            prior[one, other] += doubts[one].target * times[one] * doubts[other].target * times[other]
            if kinds[one] == kinds[other]:
                prior[one, other] += doubts[one].kind * times[one] * doubts[other].kind * times[other]
    mean = np.array([*times, *(joint.change_us for joint in joints), module.KERNEL_US, module._US_PER_BYTE])

    def features(mask: int, nbytes: float) -> list[float]:
        inside = [mask >> at & 1 for at in range(count)]
        return [*map(float, inside), *(float(inside[one] * inside[other]) for one, other in pairs), 1.0, nbytes]

    rows = np.array([features(mask, nbytes) for mask, nbytes, *_ in seen])
    costs = np.array([cost for *_, cost, _ in seen])
    noise = np.diag((module.NOISE * costs) ** 2 + module._NOISE_US**2)
    gain = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + noise)
    posterior = mean + gain @ (costs - rows @ mean)
    covariance = prior - gain @ rows @ prior
    for _ in range(10):
        nodes, nbytes = rng.randrange(1, 1 << count), rng.uniform(0, 1e5)
        row = np.array(features(nodes, nbytes))
        expected, deviation = belief.moments(nodes, nbytes)
        assert expected == pytest.approx(row @ posterior, rel=1e-6, abs=1e-6)
        assert deviation == pytest.approx(np.sqrt(row @ covariance @ row), rel=1e-4, abs=1e-4)


def test_a_kernel_that_was_seen_is_believed_and_one_like_it_is_estimated_as_fast() -> None:
    belief = TargetBelief([100.0, 100.0, 100.0], ["conv", "conv", "exp"], [GUESSED] * 3)
    beliefs = Beliefs({"a": belief}, lambda nodes: 0.0).learning([("a", 0b001, 20.0)])

    assert beliefs.mean_us("a", 0b001) == pytest.approx(20.0, rel=0.1)
    assert beliefs.mean_us("a", 0b010) < 60 < beliefs.mean_us("a", 0b100)
    drawn = drawn_us(beliefs, "a", 0b010)
    assert min(drawn) < beliefs.mean_us("a", 0b010) < max(drawn)


def test_what_is_seen_of_one_target_says_nothing_of_another() -> None:
    one = TargetBelief([10.0], ["conv"], [GUESSED])
    beliefs = Beliefs({"a": one, "b": one}, lambda nodes: 0.0).learning([("a", 1, 500.0)])

    assert beliefs.mean_us("b", 1) == pytest.approx(10.0 + module.KERNEL_US)


def test_layouts_that_change_at_boundaries_are_told_from_slow_operators() -> None:
    rng = random.Random(3)
    nbytes = {mask: rng.uniform(1e4, 1e6) for mask in range(1, 64)}
    belief = TargetBelief([30.0] * 6, ["conv"] * 6, [PROFILED] * 6)
    beliefs = Beliefs({"a": belief}, nbytes.__getitem__)
    for _ in range(30):
        mask = rng.randrange(1, 64)
        beliefs = beliefs.learning([("a", mask, 30.0 * mask.bit_count() + 2e-4 * nbytes[mask])])

    for mask in (0b1, 0b1011, 0b111111):
        truth = 30.0 * mask.bit_count() + 2e-4 * nbytes[mask]
        assert beliefs.mean_us("a", mask) == pytest.approx(truth, rel=0.1)


def test_a_first_belief_that_was_held_too_firmly_gives_way() -> None:
    belief = TargetBelief([90.0, 90.0, 10.0, 10.0], ["a", "b", "c", "d"], [PROFILED] * 4)
    beliefs = Beliefs({"t": belief}, lambda nodes: 0.0)
    beliefs = beliefs.learning([("t", 0b1111, 200.0), ("t", 0b0011, 20.0)])

    assert beliefs.mean_us("t", 0b0011) == pytest.approx(20.0, rel=0.1)
    assert beliefs.mean_us("t", 0b1100) == pytest.approx(180.0, rel=0.25)


def pairs_of(count: int) -> list[int]:
    """Masks of one and two nodes."""
    return [1 << one | 1 << other for one in range(count) for other in range(one, count)]


def test_noise_that_no_block_shows_is_not_taken_for_doubt() -> None:
    rng, count = random.Random(7), 8
    belief = TargetBelief([100.0] * count, list("abcdefgh"), [Doubt(node=0.02, kind=0.0, target=0.0)] * count)
    seen = [
        (nodes, 0.0, (100.0 * nodes.bit_count() + module.KERNEL_US) * math.exp(rng.gauss(0, 0.12)), 0.03)
        for nodes in pairs_of(count)
    ]

    learnt = belief.learning(seen)

    assert learnt.noisier == 4
    # each node is known as well as at first, and believed to take what it takes
    for nodes in pairs_of(count):
        mean, deviation = learnt.moments(nodes, 0.0)
        assert mean == pytest.approx(100.0 * nodes.bit_count() + module.KERNEL_US, rel=0.06)
        assert deviation < 0.03 * mean + module._KERNEL_SD_US


def test_wrong_beliefs_are_not_taken_for_noise() -> None:
    rng, count = random.Random(8), 8
    truth = [100.0 * rng.choice([0.3, 1.0, 3.0]) for _ in range(count)]
    belief = TargetBelief([100.0] * count, list("abcdefgh"), [PROFILED] * count)
    seen = [
        (nodes, 0.0, sum(truth[at] for at in range(count) if nodes >> at & 1) + module.KERNEL_US, 0.03)
        for nodes in pairs_of(count)
    ]

    learnt = belief.learning(seen)

    assert learnt.noisier == 1
    for at in range(count):
        assert learnt.moments(1 << at, 0.0)[0] == pytest.approx(truth[at] + module.KERNEL_US, rel=0.05)


def test_how_noisy_measurements_are_is_the_mean_over_them() -> None:
    steady = TargetBelief([100.0], ["conv"], [PROFILED])
    beliefs = Beliefs({"steady": steady, "noisy": steady, "new": steady}, zero)
    assert beliefs.noisier == 1

    noisy = [("noisy", 1, 102.0 * factor) for factor in (0.8, 1.2) * 10]
    beliefs = beliefs.learning([*noisy, *[("steady", 1, 102.0)] * 10])

    assert beliefs.noisier == pytest.approx((4 * 20 + 1 * 10) / 30)


@pytest.mark.parametrize("seed", range(10))
def test_how_likely_measurements_were_is_their_joint_density(seed: int) -> None:
    import scipy.stats  # takes more than a second

    rng = np.random.default_rng(seed)
    mean, own, shared = rng.uniform(1, 9, 4), rng.uniform(0.1, 2, 4), rng.standard_normal((2, 4))
    by, noise = rng.uniform(0, 2, (5, 4)), rng.uniform(0.1, 1, 5)
    values = by @ mean + rng.standard_normal(5)

    now, fit = Normal.first(mean, own, shared, draws=2, seed=0), Fit()
    for row, value, deviation in zip(by, values, noise, strict=True):
        now, one = now.learning(np.arange(4), row, float(value), float(deviation))
        fit += one

    covariance = by @ (np.diag(own) + shared.T @ shared) @ by.T + np.diag(noise**2)
    expected = scipy.stats.multivariate_normal(by @ mean, covariance)
    assert fit.log_density == pytest.approx(float(expected.logpdf(values)))
    off = values - by @ mean
    assert fit.squares == pytest.approx(float(off @ np.linalg.solve(covariance, off)))


def test_an_optimistic_estimate_is_three_deviations_less_and_stays_positive() -> None:
    firm = TargetBelief([300.0, 200.0], ["conv", "exp"], [Doubt(node=0.1, kind=0.0, target=0.0)] * 2)
    vague = TargetBelief([300.0, 200.0], ["conv", "exp"], [GUESSED] * 2)
    beliefs = Beliefs({"firm": firm, "vague": vague, "free": TargetBelief([0.0], ["none"], [PROFILED])}, zero)

    mean, deviation = firm.moments(0b11, 0.0)
    assert beliefs.optimistic_us("firm", 0b11) == pytest.approx(mean - 3 * deviation)
    assert beliefs.optimistic_us("vague", 0b11) == pytest.approx(0.3 * vague.moments(0b11, 0.0)[0])
    assert beliefs.optimistic_us("free", 0b1) > 0
    learnt = beliefs.learning([("firm", 0b11, mean)], 0.001)
    assert learnt.optimistic_us("firm", 0b11) > beliefs.optimistic_us("firm", 0b11)


def test_draws_are_of_what_was_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many draws have the mean of the distribution and its deviation, with the tails of Student's t distribution."""
    import scipy.stats  # takes more than a second

    monkeypatch.setattr(module, "DRAWS", 20_000)
    monkeypatch.setattr(module, "_SURPRISE", 1e9)
    joints = [Joint(nodes=(0, 1), change_us=40.0, doubt_us=20.0)]
    belief = TargetBelief([300.0, 200.0, 400.0], ["conv", "conv", "exp"], [PROFILED] * 3, joints)
    for seen in ([], [(0b011, 1e5, 520.0, 0.05), (0b110, 0.0, 700.0, 0.01)]):
        learnt = belief.learning(seen)
        for nodes in (0b001, 0b011, 0b100, 0b111):
            mean, deviation = learnt.moments(nodes, 0.0)
            (drawn,) = learnt.drawn_us([(nodes, 0.0)])
            # a kernel besides its nodes takes no less than nothing, so some draws are a little longer; and the noise of
            # what was measured is normal
            assert float(np.median(drawn)) == pytest.approx(mean, abs=0.03 * deviation + 5.0)
            for quantile in (0.1, 0.75, 0.9):
                off = float(np.quantile(drawn, quantile)) - mean
                tails = [float(each.ppf(quantile)) * deviation for each in (scipy.stats.t(4), scipy.stats.norm)]
                assert min(tails) - 0.1 * deviation - 5.0 < off < max(tails) + 0.1 * deviation + 5.0
            if not seen:
                assert float(np.quantile(drawn, 0.99)) == pytest.approx(
                    mean + float(scipy.stats.t(4).ppf(0.99)) * deviation, rel=0.15
                )


def test_many_kernels_are_drawn_as_one_by_one_and_anew_once_more_is_known() -> None:
    def beliefs() -> Beliefs:
        joints = [Joint(nodes=(0, 1), change_us=40.0, doubt_us=20.0)]
        times = [300.0, 200.0, 400.0]
        targets = {
            name: TargetBelief(times, list("xxy"), [PROFILED] * 3, joints, seed=len(name)) for name in ("a", "bb")
        }
        return Beliefs(targets, lambda nodes: 1e4 * nodes)

    for learnt in (beliefs(), beliefs().learning([("a", 0b011, 450.0)]), beliefs().learning([("bb", 0b010, 150.0)])):
        kernels = [candidate(name, nodes) for name in ("a", "bb") for nodes in range(1, 8)]
        learnt.drawn_us(kernels[3:5])
        learnt = learnt.learning([("a", 0b100, 380.0)])
        together = learnt.drawn_us(kernels)
        assert together.shape == (module.DRAWS, len(kernels))
        for each, drawn in zip(kernels, together.T, strict=True):
            again = learnt.learning([]).drawn_us([each])[:, 0]
            assert drawn == pytest.approx(again)
    assert beliefs().drawn_us([]).shape == (module.DRAWS, 0)


@pytest.mark.parametrize("surprise", [1e9, 0.0])
def test_what_is_learnt_together_is_what_is_learnt_one_by_one(surprise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every doubt is doubled as far as it goes."""
    monkeypatch.setattr(module, "_SURPRISE", surprise)
    seen = [(nodes, 1e4, 100.0 * nodes, 0.02) for nodes in (1, 3, 2, 7, 4, 6, 5)]
    together = one_by_one = TargetBelief([50.0] * 3, list("xxy"), [PROFILED] * 3)
    together = together.learning(seen)
    for each in seen:
        one_by_one = one_by_one.learning([each])

    for nodes in range(1, 8):
        assert one_by_one.moments(nodes, 0.0) == pytest.approx(together.moments(nodes, 0.0))
        assert one_by_one.drawn_us([(nodes, 0.0)]) == pytest.approx(together.drawn_us([(nodes, 0.0)]))


def test_what_was_measured_is_drawn_as_it_was_measured_within_its_noise() -> None:
    belief = TargetBelief([50.0] * 4, list("abcd"), [PROFILED] * 4)
    beliefs = Beliefs({"t": belief}, lambda nodes: 0.0).learning([("t", 0b1111, 250.0)], 0.001)

    whole, halves = drawn_us(beliefs, "t", 0b1111), [drawn_us(beliefs, "t", half) for half in (0b0011, 0b1100)]

    assert all(us == pytest.approx(250.0, abs=70.0) for us in whole)  # of what a kernel takes besides, no draw is < 0
    # what one half gains the other loses
    assert np.corrcoef(halves[0], halves[1])[0, 1] < -0.5
    assert max(halves[0]) - min(halves[0]) > 10


def test_draws_of_two_targets_have_nothing_to_do_with_each_other_and_are_made_again() -> None:
    beliefs = [
        Beliefs({name: TargetBelief([100.0], ["conv"], [GUESSED], seed=seed) for seed, name in enumerate("ab")}, zero)
        for _ in range(2)
    ]

    assert drawn_us(beliefs[0], "a", 1) == drawn_us(beliefs[1], "a", 1)
    assert abs(np.corrcoef(drawn_us(beliefs[0], "a", 1), drawn_us(beliefs[0], "b", 1))[0, 1]) < 0.7


def test_no_draw_is_of_less_than_a_tenth_of_what_is_believed() -> None:
    belief = TargetBelief([100.0] * 3, list("abc"), [Doubt(node=5.0, kind=0.0, target=0.0)] * 3)
    beliefs = Beliefs({"t": belief}, zero)

    assert min(drawn_us(beliefs, "t", 0b111)) >= 30.0


def test_a_noisy_measurement_leaves_more_doubt() -> None:
    belief = TargetBelief([100.0], ["conv"], [GUESSED])
    sure, unsure = (belief.learning([(1, 0.0, 100.0, noise)]).moments(1, 0.0)[1] for noise in (0.01, 0.2))

    assert sure < 2 < 15 < unsure


def test_what_neighbours_change_is_part_of_kernels_that_hold_both() -> None:
    joints = [Joint(nodes=(0, 1), change_us=-8.0, doubt_us=1.0), Joint(nodes=(1, 2), change_us=500.0, doubt_us=1.0)]
    belief = TargetBelief([10.0, 9.0, 20.0], list("abc"), [PROFILED] * 3, joints)
    beliefs = Beliefs({"t": belief}, lambda nodes: 0.0)

    assert beliefs.mean_us("t", 0b011) == pytest.approx(10.0 + 9.0 - 8.0 + module.KERNEL_US)
    assert beliefs.mean_us("t", 0b110) == pytest.approx(9.0 + 20.0 + 500.0 + module.KERNEL_US)
    assert beliefs.mean_us("t", 0b101) == pytest.approx(10.0 + 20.0 + module.KERNEL_US)
    assert [beliefs.change_us("t", *pair) for pair in ((0, 1), (1, 2), (0, 2))] == [-8.0, 500.0, 0.0]
    # a kernel need not hold a neighbour that makes it slower
    assert [beliefs.node_us("t", node) for node in range(3)] == [10.0, 1.0, 20.0]


def test_a_layout_that_a_kernel_was_slow_for_is_learnt_as_what_neighbours_change() -> None:
    belief = TargetBelief(
        [100.0, 100.0], list("ab"), [PROFILED] * 2, [Joint(nodes=(0, 1), change_us=0.0, doubt_us=300.0)]
    )
    beliefs = Beliefs({"t": belief}, lambda nodes: 0.0).learning([("t", 0b11, 900.0)])

    assert beliefs.change_us("t", 0, 1) > 600
    assert beliefs.mean_us("t", 0b01) < 130


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        TargetBelief([float("nan")], ["conv"], [GUESSED])
    with pytest.raises(ValueError, match="every node"):
        TargetBelief([1.0], [], [GUESSED])
