"""Of defect 3: NaN costs entered comparisons, and since nothing is less than NaN the first arrival won."""

from __future__ import annotations

import math

import pytest

from collage_core.contract import Measurement, Unmeasured
from collage_core.contract.cost import checked_cost
from collage_core.search import (
    CostTable,
    ExactSearch,
    FromNothing,
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    lazy_search,
    solve,
)

NAN = math.nan
TARGETS = [SearchTarget(name=name, toolchain=name) for name in "ab"]
PROBLEM = SearchProblem.from_predecessors(
    [[]], targets=TARGETS, candidates=[SearchCandidate(nodes=1, target=name, key="k") for name in "ab"]
)


class Careless:
    """A cost source that divides nothing by nothing for one target."""

    def cost(self, candidate: SearchCandidate) -> float | Unmeasured:
        return NAN if candidate.target == "a" else 5.0


def test_the_old_comparison_let_the_first_arrival_win() -> None:
    assert min([NAN, 5.0]) is NAN
    assert min([5.0, NAN]) == 5.0


def test_no_search_takes_a_nan_for_a_cost_and_each_names_the_candidate() -> None:
    for run in (
        lambda: ExactSearch(PROBLEM, Careless()).run(),
        lambda: lazy_search(PROBLEM, Careless(), FromNothing(), lambda candidates: None),
        lambda: solve(PROBLEM, Careless()),
    ):
        with pytest.raises(ValueError, match=r"a, 'k': .*nan"):
            run()


def test_a_table_of_costs_takes_none() -> None:
    with pytest.raises(ValueError, match="nan"):
        CostTable({("a", "k"): NAN})


def test_a_measurement_has_none() -> None:
    with pytest.raises(ValueError, match="finite"):
        Measurement(samples_us=(1.0, NAN), warmup_runs=0)
    with pytest.raises(ValueError, match="nan"):
        checked_cost(NAN)
