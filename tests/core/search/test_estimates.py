from __future__ import annotations

import random

import pytest

from collage_core.search import FittedEstimates, SearchCandidate


def candidate(target: str, *nodes: int) -> SearchCandidate:
    return SearchCandidate(nodes=sum(1 << node for node in nodes), target=target, key=str(nodes))


def test_a_machine_that_adds_up_but_for_what_joining_saves_is_found_again() -> None:
    rng = random.Random(1)
    kinds = [rng.choice(["conv", "matmul", "exp"]) for _ in range(60)]
    work = [rng.uniform(5, 50) for _ in kinds]
    truth = {"conv": 0.5, "matmul": 2.0, "exp": 1.2}
    estimates = FittedEstimates(work, kinds)

    def cost(nodes: list[int]) -> float:
        total = sum(work[node] * truth[kinds[node]] for node in nodes)
        return 0.7 * total if len(nodes) > 1 else total

    for kind in truth:
        node = kinds.index(kind)
        estimates = estimates.learning("a", 1 << node, cost([node]), alone=True)
    estimates = estimates.learning("a", (1 << 60) - 1, cost(list(range(60))), alone=False)

    for size in (1, 2, 8, 30):
        nodes = rng.sample(range(60), size)
        assert estimates.expected_us(candidate("a", *nodes)) == pytest.approx(cost(nodes))


def test_what_a_target_was_not_seen_doing_is_hoped_to_be_as_fast_as_anywhere() -> None:
    estimates = FittedEstimates([10.0, 10.0], ["conv", "exp"], hope=0.8)
    estimates = estimates.learning("a", 0b01, 10.0, alone=True)
    estimates = estimates.learning("c", 0b01, 70.0, alone=True)
    estimates = estimates.learning("b", 0b10, 500.0, alone=True)

    assert estimates.expected_us(candidate("b", 0)) == pytest.approx(8.0)
    assert estimates.expected_us(candidate("b", 1)) == pytest.approx(500.0)
    assert estimates.is_known("b", "exp")
    assert not estimates.is_known("b", "conv")
    assert estimates.known_us("b", 0b11) == pytest.approx(500.0)


def test_what_was_seen_nowhere_is_hoped_to_be_as_fast_as_the_whole() -> None:
    estimates = FittedEstimates([10.0, 10.0], ["conv", "exp"], hope=0.5)
    estimates = estimates.learning("a", 0b11, 40.0, alone=False)
    estimates = estimates.learning("b", 0b11, 80.0, alone=False)

    assert estimates.expected_us(candidate("b", 0)) == pytest.approx(10.0)


def test_what_holds_much_that_is_unknown_says_nothing_of_joining() -> None:
    estimates = FittedEstimates([10.0, 10.0], ["conv", "exp"], hope=0.9)
    estimates = estimates.learning("a", 0b01, 10.0, alone=True)
    estimates = estimates.learning("b", 0b10, 10.0, alone=True)
    estimates = estimates.learning("a", 0b11, 1000.0, alone=False)  # the exp is to blame, not the joining

    assert estimates.expected_us(candidate("a", 0, 1)) == pytest.approx(0.9 * (10 + 9))


def test_measurements_of_a_kind_count_by_their_work() -> None:
    estimates = FittedEstimates([90.0, 10.0, 1.0], ["conv", "conv", "conv"])
    estimates = estimates.learning("a", 0b001, 90.0, alone=True)
    estimates = estimates.learning("a", 0b010, 30.0, alone=True)

    assert estimates.expected_us(candidate("a", 2)) == pytest.approx(1.2)


def test_a_group_that_counts_as_one_operator_stands_for_what_is_most_of_it() -> None:
    estimates = FittedEstimates([1.0, 10.0, 1.0, 10.0], ["quantize", "conv", "dequantize", "conv"])
    estimates = estimates.learning("a", 0b0111, 24.0, alone=True)

    assert estimates.is_known("a", "conv")
    assert not estimates.is_known("a", "quantize")
    assert estimates.expected_us(candidate("a", 3)) == pytest.approx(20.0)


def test_nothing_is_proven() -> None:
    estimates = FittedEstimates([10.0], ["conv"])
    estimates = estimates.learning("a", 0b1, 10.0, alone=True)

    assert estimates.at_least_us(candidate("a", 0)) == 0.0


def test_nodes_without_work_are_free_and_before_anything_is_known_all_are() -> None:
    estimates = FittedEstimates([10.0, 0.0], ["conv", "view"])
    assert estimates.expected_us(candidate("a", 0)) == 0.0

    estimates = estimates.learning("a", 0b10, 10.0, alone=True)
    estimates = estimates.learning("a", 0b01, 30.0, alone=True)

    assert estimates.expected_us(candidate("a", 1)) == 0.0


def test_every_node_has_a_kind() -> None:
    with pytest.raises(ValueError, match="a kind"):
        FittedEstimates([1.0], [])
