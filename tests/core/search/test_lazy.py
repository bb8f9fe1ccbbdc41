"""The lazy search against the exact one, and against what it asked for."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract.cost import INVALID, UNMEASURED, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search import (
    FromNothing,
    LazyResult,
    Matrix,
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    Vector,
    lazy_search,
    search,
)

repeatable = settings(deadline=None, derandomize=True)


class Laboratory:
    """Knows every cost, and tells it only of what was measured."""

    def __init__(self, truth: dict[tuple[str, str], float]) -> None:
        self._truth = truth
        self.measured: list[tuple[str, str]] = []

    def cost(self, candidate: SearchCandidate) -> Cost | Unmeasured:
        key = (candidate.target, candidate.key)
        return self._truth.get(key, UNMEASURED) if key in self.measured else UNMEASURED

    def measure(self, candidates: Sequence[SearchCandidate]) -> None:
        for candidate in candidates:
            assert (candidate.target, candidate.key) not in self.measured, "nothing is measured twice"
            self.measured.append((candidate.target, candidate.key))


class Shares:
    """Sets of estimates that are shares of the truth: the first proves what it says where all are at most 1."""

    def __init__(self, truth: dict[tuple[str, str], float], *shares: float) -> None:
        self._truth = truth
        self._shares = shares

    def expected_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
        costs_us = np.array([self._truth.get((each.target, each.key), 0.0) for each in candidates])
        return np.outer(self._shares, np.where(np.isinf(costs_us), 0.0, costs_us))

    def at_least_us(self, candidates: Sequence[SearchCandidate]) -> Vector:
        return self.expected_us(candidates)[0] * float(max(self._shares) <= 1)


def lazily(instance: Any, estimates: Any = None, **options: Any) -> tuple[LazyResult | None, Laboratory]:
    laboratory = Laboratory(instance.costs_us)
    try:
        found = lazy_search(instance.problem, laboratory, estimates or FromNothing(), laboratory.measure, **options)
    except NoCoverError:
        return None, laboratory
    return found, laboratory


def by_lowest_node(instance: Any, candidates: tuple[SearchCandidate, ...]) -> tuple[SearchCandidate, ...]:
    needs = instance.problem.needs_kernel
    return tuple(sorted(candidates, key=lambda c: c.nodes & needs & -(c.nodes & needs)))


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_admissible_estimates_give_the_canonical_optimum(
    style: str, share: float, draw: Callable[..., Any], best_plan: Callable[..., Any]
) -> None:
    for seed in range(100):
        instance = draw(random.Random(seed), style)
        wanted = best_plan(instance)
        found, _ = lazily(instance, Shares(instance.costs_us, share))
        assert (found is None) == (wanted is None), (style, seed)
        if found is not None and wanted is not None:
            assert found.result is not None
            assert found.finished
            assert by_lowest_node(instance, found.result.candidates) == wanted, (style, seed)
            assert (found.result.exact, found.result.gap_us) == (True, 0.0), (style, seed)


@repeatable
@given(
    seed=st.integers(min_value=0),
    style=st.sampled_from(["uniform", "adversarial"]),
    shares=st.lists(st.sampled_from([0.5, 1.5, 4.0]), min_size=1, max_size=9),  # more than are searched each time
    gain=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_what_is_claimed_of_a_plan_holds_whatever_the_estimates_hoped(
    draw: Callable[..., Any],
    best_plan: Callable[..., Any],
    ranked: Callable[..., Any],
    seed: int,
    style: str,
    shares: list[float],
    gain: float,
) -> None:
    instance = draw(random.Random(seed), style)
    laboratory = Laboratory(instance.costs_us)
    estimates = Shares(instance.costs_us, *shares)
    try:
        found = lazy_search(instance.problem, laboratory, estimates, laboratory.measure, gain=gain)
    except NoCoverError:
        assert best_plan(instance) is None
        return
    assert found.result is not None
    optimum_us = ranked(instance, best_plan(instance))[0] / 1e6
    assert found.result.total_us - found.result.gap_us <= optimum_us + 1e-6
    assert found.result.total_us >= optimum_us - 1e-6
    if found.result.exact:
        assert found.result.total_us == pytest.approx(optimum_us)
    assert all((c.target, c.key) in laboratory.measured for c in found.result.candidates)
    assert [(s.candidate.target, s.candidate.key) for s in found.steps] == laboratory.measured


def chain(length: int, slow: float) -> tuple[SearchProblem, dict[tuple[str, str], float]]:
    """A chain, two targets, every run of up to three nodes; `b` takes `slow` times as long."""
    targets = [SearchTarget(name=name, toolchain=name) for name in "ab"]
    candidates, truth = [], {}
    for start, size, name in itertools.product(range(length), (1, 2, 3), "ab"):
        if start + size <= length:
            nodes = sum(1 << node for node in range(start, start + size))
            candidates.append(SearchCandidate(nodes=nodes, target=name, key=f"{start}+{size}"))
            truth[name, f"{start}+{size}"] = (size + 1.0) * (slow if name == "b" else 1.0)
    problem = SearchProblem.from_predecessors(
        [[node - 1] if node else [] for node in range(length)], targets=targets, candidates=candidates
    )
    return problem, truth


def test_good_estimates_save_most_of_the_measuring() -> None:
    problem, truth = chain(30, 1.2)
    measured = {}
    for share in (0.0, 0.95, 1.0):
        laboratory = Laboratory(truth)
        found = lazy_search(problem, laboratory, Shares(truth, share), laboratory.measure)
        assert found.result is not None
        assert (found.result.total_us, found.result.exact) == (40.0, True)
        measured[share] = len(laboratory.measured)

    assert measured[1.0] == 10  # the path alone
    assert measured[0.95] < len(truth) / 5
    assert measured[0.0] > len(truth) / 2


def test_a_second_run_over_what_is_known_takes_the_same_path_and_measures_nothing() -> None:
    problem, truth = chain(12, 0.9)
    laboratory = Laboratory(truth)
    first = lazy_search(problem, laboratory, Shares(truth, 0.8), laboratory.measure)

    def must_not(candidates: Sequence[SearchCandidate]) -> None:
        raise AssertionError(candidates)

    again = lazy_search(problem, laboratory, Shares(truth, 0.8), must_not)

    assert again.result == first.result
    assert again.steps == ()


def test_it_stops_when_it_is_told_though_there_is_no_plan() -> None:
    problem, truth = chain(9, 1.5)
    laboratory = Laboratory(truth)

    found = lazy_search(problem, laboratory, FromNothing(), laboratory.measure, stop=lambda lacking: True)

    assert (found.result, found.steps, found.finished) == (None, (), False)
    assert laboratory.measured == []


def test_the_plan_that_is_there_when_it_is_told_to_stop_is_not_exact() -> None:
    problem, truth = chain(9, 1.5)
    laboratory = Laboratory(truth)
    laboratory.measured = [("a", "0+3"), ("a", "3+3"), ("a", "6+3")]

    found = lazy_search(problem, laboratory, FromNothing(), laboratory.measure, stop=lambda lacking: True)

    assert not found.finished
    assert found.result is not None
    assert not found.result.exact
    assert found.result.total_us - found.result.gap_us <= 12.0 <= found.result.total_us
    assert found.steps == ()


def test_a_promise_of_little_is_not_followed() -> None:
    problem, truth = chain(9, 1.0)
    laboratory = Laboratory(truth)
    laboratory.measured = [("a", "0+3"), ("a", "3+3"), ("a", "6+3")]

    found = lazy_search(problem, laboratory, Shares(truth, 0.9), laboratory.measure, gain=0.15)

    assert found.steps == ()
    assert found.result is not None
    assert not found.result.exact
    assert found.result.gap_us == pytest.approx(1.2)  # of 12: what the estimates leave open


def test_of_several_sets_of_estimates_the_plans_that_save_most_are_looked_at_first() -> None:
    """Two sets believe in `a`, by a little, one in `b`, by much."""
    problem, truth = chain(3, 1.0)
    laboratory = Laboratory(truth)
    laboratory.measured = [("a", "0+1"), ("a", "1+1"), ("a", "2+1")]  # 6 us

    class Opinions:
        """What the kernel of all three nodes takes, by each set."""

        def expected_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
            little, much = {"a": 3.9, "b": 100.0}, {"a": 100.0, "b": 1.0}
            rows = [
                [costs_us[each.target] if each.key == "0+3" else 100.0 for each in candidates]
                for costs_us in (little, much, little)
            ]
            return np.array(rows).reshape(3, len(candidates))

        def at_least_us(self, candidates: Sequence[SearchCandidate]) -> Vector:
            return np.zeros(len(candidates))

    found = lazy_search(problem, laboratory, Opinions(), laboratory.measure, gain=0.01)

    first, second = found.steps
    assert first.candidate.target == "b"
    assert first.saving_us == pytest.approx((2.1 + 5.0 + 2.1) / 3)
    assert second.candidate.target == "a"  # `b` took 4 us
    assert found.searches == 9


def test_a_promise_of_some_is_followed_by_its_mean() -> None:
    problem, truth = chain(9, 1.0)
    for gain, steps in ((0.04, True), (0.06, False)):  # half of the sets promise a tenth
        laboratory = Laboratory(truth)
        laboratory.measured = [("a", "0+3"), ("a", "3+3"), ("a", "6+3")]
        sets = Shares(truth, 0.9, 1.5)

        assert bool(lazy_search(problem, laboratory, sets, laboratory.measure, gain=gain).steps) is steps


def test_what_alone_promises_little_is_not_followed() -> None:
    problem, truth = chain(9, 1.0)
    for worth, steps in ((0.03, True), (0.04, False)):  # three kernels promise a thirtieth each
        laboratory = Laboratory(truth)
        laboratory.measured = [("a", "0+3"), ("a", "3+3"), ("a", "6+3")]

        found = lazy_search(problem, laboratory, Shares(truth, 0.9), laboratory.measure, worth=worth)

        assert bool(found.steps) is steps


def test_what_has_one_key_is_one_to_measure_and_what_is_like_the_largest_is_measured_with_it() -> None:
    """32 equal layers and 32 that are all different: measured are some of the different ones at a time."""
    keys = [*["equal"] * 32, *(f"{node}" for node in range(32))]
    targets = [SearchTarget(name=name, toolchain=name) for name in "ab"]
    candidates = [SearchCandidate(nodes=1 << at, target=name, key=key) for at, key in enumerate(keys) for name in "ab"]
    problem = SearchProblem.from_predecessors(
        [[node - 1] if node else [] for node in range(64)], targets=targets, candidates=candidates
    )
    truth = {(name, key): 2.0 for name in "ab" for key in keys}
    laboratory = Laboratory(truth)
    laboratory.measured = [("a", key) for key in dict.fromkeys(keys)]
    asked: list[list[str]] = []

    def measure(wanted: Sequence[SearchCandidate]) -> None:
        asked.append([each.key for each in wanted])
        laboratory.measure(wanted)

    found = lazy_search(problem, laboratory, Shares(truth, 0.5), measure)

    assert asked[0] == ["equal"]  # the others are less than half of it
    assert asked[1] == ["0", "1", "2"]  # 32 are lacking
    assert sum(map(len, asked)) == 33
    assert found.result is not None
    assert found.result.exact


def test_a_candidate_that_comes_to_nothing_is_left_out() -> None:
    problem, truth = chain(3, 2.0)
    del truth["a", "0+3"]
    laboratory = Laboratory(truth)

    found = lazy_search(problem, laboratory, FromNothing(), laboratory.measure)

    assert found.result is not None
    assert found.result.total_us == search(problem, CompleteCosts(truth)).total_us
    assert [step.cost for step in found.steps].count(UNMEASURED) == 1


@pytest.mark.parametrize("wrong", [math.nan, -1.0])
def test_an_estimate_that_is_no_time_is_an_error_that_names_the_candidate(wrong: float) -> None:
    problem, truth = chain(2, 1.0)
    laboratory = Laboratory(truth)

    with pytest.raises(ValueError, match=r"b, '0\+2'"):
        lazy_search(problem, laboratory, Shares({**truth, ("b", "0+2"): wrong}, 1.0), laboratory.measure)


class CompleteCosts:
    """The truth, with what is not in it unusable."""

    def __init__(self, truth: dict[tuple[str, str], float]) -> None:
        self._truth = truth

    def cost(self, candidate: SearchCandidate) -> Cost:
        return self._truth.get((candidate.target, candidate.key), INVALID)


def test_a_node_that_nothing_covers_is_an_error() -> None:
    problem, truth = chain(2, 1.0)
    laboratory = Laboratory(dict.fromkeys(truth, INVALID))

    with pytest.raises(NoCoverError) as caught:
        lazy_search(problem, laboratory, FromNothing(), laboratory.measure)

    assert caught.value.nodes
