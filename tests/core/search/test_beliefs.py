"""Beliefs against the posterior of a linear model, computed at once with NumPy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from collage_core.search import SearchCandidate
from collage_core.search import beliefs as module
from collage_core.search.beliefs import GUESSED, PROFILED, Beliefs, Doubt, Joint, TargetBelief


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
    seen = [(rng.randrange(1, 1 << count), rng.uniform(0, 1e5), rng.uniform(10, 400)) for _ in range(5)]
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

    rows = np.array([features(mask, nbytes) for mask, nbytes, _ in seen])
    costs = np.array([cost for *_, cost in seen])
    noise = np.diag((module._NOISE * costs) ** 2 + module._NOISE_US**2)
    gain = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + noise)
    posterior = mean + gain @ (costs - rows @ mean)
    covariance = prior - gain @ rows @ prior
    for _ in range(10):
        nodes, nbytes = rng.randrange(1, 1 << count), rng.uniform(0, 1e5)
        row = np.array(features(nodes, nbytes))
        expected, deviation = belief.moments(nodes, nbytes)
        assert expected == pytest.approx(row @ posterior, rel=1e-6, abs=1e-6)
        assert deviation == pytest.approx(np.sqrt(row @ covariance @ row), rel=1e-4, abs=1e-4)


def test_a_kernel_that_was_seen_is_believed_and_one_like_it_is_hoped_to_be_as_fast() -> None:
    belief = TargetBelief([100.0, 100.0, 100.0], ["conv", "conv", "exp"], [GUESSED] * 3)
    beliefs = Beliefs({"a": belief}, lambda nodes: 0.0).learning([("a", 0b001, 20.0)])

    assert beliefs.mean_us("a", 0b001) == pytest.approx(20.0, rel=0.1)
    assert beliefs.mean_us("a", 0b010) < 60 < beliefs.mean_us("a", 0b100)
    assert beliefs.expected_us(candidate("a", 0b010)) < beliefs.mean_us("a", 0b010)


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


def test_hope_is_for_nodes_and_not_for_what_a_kernel_takes_besides() -> None:
    belief = TargetBelief([10.0] * 4, ["conv"] * 4, [Doubt(node=0.0, kind=0.0, target=0.0)] * 4)

    assert belief.hoped_us(0b1111, 1e6, 3.0) == pytest.approx(belief.moments(0b1111, 1e6)[0])


def test_kernels_whose_sum_is_known_leave_little_to_hope_for_together() -> None:
    belief = TargetBelief([50.0] * 4, list("abcd"), [PROFILED] * 4)
    beliefs = Beliefs({"t": belief}, lambda nodes: 0.0).learning([("t", 0b1111, 200.0)])
    halves = [candidate("t", 0b0011), candidate("t", 0b1100)]

    apart = sum(beliefs.expected_us(each) for each in halves)

    assert beliefs.hoped_together_us(halves) > 185 > apart
    assert beliefs.hoped_together_us(halves[:1]) == pytest.approx(beliefs.expected_us(halves[0]))


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
