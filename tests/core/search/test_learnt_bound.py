"""The cheapest plan within a bound on an error that only runs tell, against brute force over all partitionings."""

from __future__ import annotations

import collections
import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from collage_core.contract.cost import INVALID, UNMEASURED
from collage_core.errors import NoCoverError
from collage_core.search import (
    LearntResult,
    LearntRun,
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    bounded_search,
    learnt_bound_search,
)
from tests.core.search.conftest import Instance, Plan, is_acyclic, members
from tests.core.search.devices import random_device_instance

NEAR = 1.03
"""What a plan may cost as a multiple of the optimum's cost."""
SHARE = 0.95
"""Share of problems whose plan has to be that near."""
MEAN_RUNS, MOST_RUNS = 8.0, 24
LAWS = ("sum", "squares", "maximum", "norm", "wrong", "readers", "pairs", "quadratic")
"""How errors of kernels make that of a plan, see `Case.error`."""
PRECISIONS = {"exact": (1.0, 1.0), "half": (0.45, 0.95), "low": (0.2, 0.7)}
"""Least and largest cost of each, as a share of the exact kernel's cost."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A problem with first guesses of errors, and the law of true ones.

    Attributes:
        instance: The problem and its costs.
        guesses: First guess of each candidate's error.
        truths: What the law makes a plan's error of, for each candidate.
        law: One of `LAWS`.
        power: Of the law "norm".
        seed: Of the factors between two candidates.
    """

    instance: Instance
    guesses: tuple[float, ...]
    truths: dict[SearchCandidate, float]
    law: str
    power: float
    seed: int

    def factor(self, one: SearchCandidate, other: SearchCandidate) -> float:
        """How many times the error of one another makes it: 0.5 to 2."""
        return float(2 ** random.Random(f"{self.seed} {one.key} {other.key}").uniform(-1, 1))

    def reads(self, one: SearchCandidate, other: SearchCandidate) -> bool:
        sources = {source for node in members(one.nodes) for source in self.instance.predecessors[node]}
        return one is not other and any(other.nodes >> source & 1 for source in sources)

    def error(self, plan: Sequence[SearchCandidate]) -> float:
        """The true error of a plan.

        "sum", "squares" and "maximum" are what they say; of "norm" the power is neither 1 nor 2. "wrong" adds squares
        where guesses are off by factors, own ones and those of a target. The last three are sums with factors: an error
        is multiplied by one for each kernel it reads from, or for each other kernel; or the sum's square has one for
        each product of two errors.
        """
        errors = [self.truths[each] for each in plan]
        if self.law == "maximum":
            return max(errors)
        if self.law == "quadratic":
            products = [
                self.truths[one] * self.truths[other] * (1 if one is other else self.factor(*sorted_pair(one, other)))
                for one in plan
                for other in plan
            ]
            return math.sqrt(math.fsum(products))
        if self.law in ("readers", "pairs"):
            errors = [
                self.truths[one]
                * math.prod(
                    self.factor(one, other)
                    for other in plan
                    if other is not one and (self.law == "pairs" or self.reads(one, other))
                )
                for one in plan
            ]
        power = {"squares": 2.0, "wrong": 2.0, "norm": self.power}.get(self.law, 1.0)
        return float(math.fsum(error**power for error in errors) ** (1 / power))

    def cost_us(self, plan: Sequence[SearchCandidate]) -> float:
        return math.fsum(map(self.instance.price_us, plan))

    @property
    def costs_us(self) -> list[float]:
        return [self.instance.costs_us[each.target, each.key] for each in self.instance.problem.candidates]


def sorted_pair(one: SearchCandidate, other: SearchCandidate) -> tuple[SearchCandidate, SearchCandidate]:
    return (one, other) if one.key < other.key else (other, one)


def a_case(law: str, seed: int) -> Case:
    """Three to six nodes in a chain or a small graph; two toolchains with three precisions each."""
    rng = random.Random(f"{law} {seed}")
    count = rng.randint(3, 6)
    chain = rng.random() < 0.5
    predecessors = [
        tuple(range(max(0, node - 1), node)) if chain else tuple(rng.sample(range(node), min(node, rng.randint(1, 2))))
        for node in range(count)
    ]
    targets = [
        SearchTarget(name=f"{toolchain}({precision})", toolchain=toolchain, dispatch_us=rng.choice([0.0, 1.0]))
        for toolchain in "ab"
        for precision in PRECISIONS
    ]
    empty = SearchProblem.from_predecessors(predecessors, targets=targets, candidates=())
    instance = Instance(predecessors=tuple(predecessors), host=0, problem=empty, costs_us={})
    times_us = [math.exp(rng.uniform(math.log(5), math.log(60))) for _ in range(count)]
    harms = [math.exp(rng.gauss(0, 1)) for _ in range(count)]
    several = [mask for mask in range(1 << count) if 2 <= mask.bit_count() <= 3 and convex(empty, mask)]
    rng.shuffle(several)
    guesses: dict[SearchCandidate, float] = {}
    for mask in [*(1 << node for node in range(count)), *several[: rng.randint(1, 3)]]:
        required = rng.choice("ab") if mask.bit_count() == 1 else ""  # every node has an exact kernel
        for toolchain in "ab":
            exact_us = sum(times_us[node] for node in members(mask)) * rng.uniform(0.6, 1.1)
            for precision, shares in PRECISIONS.items():
                if rng.random() < 0.35 and not (toolchain == required and precision == "exact"):
                    continue
                target = f"{toolchain}({precision})"
                candidate = SearchCandidate(nodes=mask, target=target, key=f"{target} {mask}")
                instance.costs_us[target, candidate.key] = exact_us * rng.uniform(*shares)
                harm = sum(harms[node] for node in members(mask)) * math.exp(rng.gauss(0, 0.7))
                guesses[candidate] = harm * {"exact": 0.0, "half": 0.1, "low": 1.0}[precision]
    truths = dict(guesses)
    if law == "wrong":
        off = {target.name: math.exp(rng.gauss(0, 0.7)) for target in targets}
        truths = {each: guess * off[each.target] * math.exp(rng.gauss(0, 0.7)) for each, guess in guesses.items()}
    return Case(
        instance=instance.with_candidates(list(guesses)),
        guesses=tuple(guesses.values()),
        truths=truths,
        law=law,
        power=rng.uniform(1.2, 4),
        seed=seed,
    )


def convex(problem: SearchProblem, mask: int) -> bool:
    before = after = 0
    for node in members(mask):
        before |= problem.ancestors[node]
        after |= problem.descendants[node]
    return not before & after & ~mask


def by_cost(case: Case) -> Iterator[tuple[float, Plan]]:
    """Every plan and its cost, cheapest first."""
    candidates = [(each, case.instance.price_us(each)) for each in case.instance.problem.candidates]
    nodes = range(case.instance.problem.node_count)
    holding = [[(each, cost_us) for each, cost_us in candidates if each.nodes >> node & 1] for node in nodes]
    plans: list[tuple[float, int, Plan]] = []

    def extend(plan: Plan, cost_us: float, covered: int) -> None:
        left = next((node for node in nodes if not covered >> node & 1), None)
        if left is None:
            plans.append((cost_us, len(plans), plan))
            return
        for candidate, own_us in holding[left]:
            if not candidate.nodes & covered:
                extend((*plan, candidate), cost_us + own_us, covered | candidate.nodes)

    extend((), 0.0, 0)
    for cost_us, _, plan in sorted(plans):
        if is_acyclic(case.instance, plan):
            yield cost_us, plan


class Laboratory:
    """Runs plans of a case; refuses to run one twice."""

    def __init__(self, error: Callable[[Plan], float]) -> None:
        self._error = error
        self.errors: dict[Plan, float] = {}

    def run(self, plan: Plan) -> float:
        assert plan not in self.errors, "no plan is run twice"
        self.errors[plan] = self._error(plan)
        return self.errors[plan]


def results(found: LearntResult) -> list[LearntResult | LearntRun]:
    return [found, *found.runs]


def a_bound(case: Case, plans: Sequence[tuple[float, Plan]], seed: int) -> float:
    """Part of what the cheapest plan is wrong by."""
    return case.error(plans[0][1]) * random.Random(seed).uniform(0.1, 0.9) or 1.0


def found_in(case: Case, bound: float, **options: Any) -> tuple[LearntResult, Laboratory]:
    laboratory = Laboratory(case.error)
    found = learnt_bound_search(case.instance.problem, case.costs_us, case.guesses, bound, laboratory.run, **options)
    assert found is not None, "plans that are exact keep to every bound"
    return found, laboratory


def compare(seeds: range) -> None:
    """Check plans of random problems against the optimum; see the acceptance test."""
    near: dict[str, list[bool]] = collections.defaultdict(list)
    runs: dict[str, list[int]] = collections.defaultdict(list)
    for seed in seeds:
        law = LAWS[seed % len(LAWS)]
        case = a_case(law, seed)
        plans = list(by_cost(case))
        bound = a_bound(case, plans, seed)
        wanted_us = next(cost_us for cost_us, plan in plans if case.error(plan) <= bound)

        found, laboratory = found_in(case, bound)

        assert case.error(found.candidates) == found.error <= bound, (law, seed)
        assert found.total_us == pytest.approx(case.cost_us(found.candidates)), (law, seed)
        assert found.total_us >= wanted_us - 1e-6, (law, seed)
        assert [(run.candidates, run.error) for run in found.runs] == list(laboratory.errors.items())
        near[law].append(found.total_us <= wanted_us * NEAR)
        runs[law].append(len(found.runs))
    every = [each for counts in runs.values() for each in counts]
    share = statistics.mean(each for nears in near.values() for each in nears)
    said = (
        f"{share:.1%} of {len(every)} near, {statistics.mean(every):.1f} runs on average, {max(every)} at most: "
        + str({law: (f"{statistics.mean(near[law]):.0%}", round(statistics.mean(runs[law]), 1)) for law in near})
    )
    assert share >= SHARE, said
    assert statistics.mean(every) <= MEAN_RUNS, said
    assert max(every) <= MOST_RUNS, said


def test_plans_of_random_problems_are_within_the_bound_and_near_the_optimum() -> None:
    compare(range(12))


@pytest.mark.slow
def test_plans_of_500_random_problems_are_within_the_bound_and_near_the_optimum() -> None:
    compare(range(500))


@pytest.mark.slow
def test_errors_that_add_in_squares_as_guessed_give_the_optimum() -> None:
    for seed in range(20):
        case = a_case("squares", seed)
        plans = list(by_cost(case))
        bound = a_bound(case, plans, seed)

        found, _ = found_in(case, bound)

        squares = [guess**2 for guess in case.guesses]
        additive = bounded_search(case.instance.problem, case.costs_us, squares, bound**2)
        assert additive is not None
        assert found.total_us == pytest.approx(additive.total_us), seed
        assert found.total_us == pytest.approx(next(us for us, plan in plans if case.error(plan) <= bound)), seed
        if found.runs:
            assert found.runs[0].candidates == additive.candidates


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
def test_plans_of_any_graph_are_legal_and_cost_what_is_said(
    style: str, draw: Callable[..., Any], plans_of: Callable[..., Any]
) -> None:
    outcomes = collections.Counter[str]()
    for seed in range(30):
        rng = random.Random(seed)
        instance = draw(rng, style)
        candidates = instance.problem.candidates
        truths = {each: rng.choice([0.0, rng.uniform(0.1, 5)]) for each in candidates}
        guesses = [truths[each] * math.exp(rng.gauss(0, 0.7)) for each in candidates]
        costs_us = [instance.costs_us.get((each.target, each.key), UNMEASURED) for each in candidates]
        bound = rng.choice([0.0, 1.0, 4.0, 8.0])
        laboratory = Laboratory(lambda plan, truths=truths: math.fsum(truths[each] for each in plan))  # type: ignore[misc]
        plans = {frozenset(plan): plan for plan in plans_of(instance)}
        try:
            found = learnt_bound_search(instance.problem, costs_us, guesses, bound, laboratory.run, most_runs=8)
        except NoCoverError:
            assert not plans
            outcomes["uncovered"] += 1
            continue
        for plan in laboratory.errors:
            assert frozenset(plan) in plans, (style, seed)
        assert len(laboratory.errors) <= 8
        if found is None:
            assert all(error > bound for error in laboratory.errors.values())
            outcomes["beyond"] += 1
            continue
        assert math.fsum(truths[each] for each in found.candidates) == pytest.approx(found.error)
        assert found.error <= bound
        for shown in results(found):
            price_us = math.fsum(map(instance.price_us, plans[frozenset(shown.candidates)]))
            assert shown.total_us == pytest.approx(price_us), (style, seed)
        outcomes["found"] += 1
    assert min(outcomes[each] for each in ("uncovered", "beyond", "found")) > 0


def test_costs_of_plans_over_several_devices_have_their_copies() -> None:
    copied = 0
    for seed in range(30):
        rng = random.Random(seed)
        instance = random_device_instance(rng, "uniform")
        candidates = instance.problem.candidates
        costs_us = [instance.costs_us.get((each.target, each.key), INVALID) for each in candidates]
        errors = {each: rng.choice([0.0, rng.uniform(0.1, 5)]) for each in candidates}
        guesses = [errors[each] for each in candidates]
        laboratory = Laboratory(lambda plan, errors=errors: math.fsum(errors[each] for each in plan))  # type: ignore[misc]
        try:
            found = learnt_bound_search(instance.problem, costs_us, guesses, 4.0, laboratory.run)
        except NoCoverError:
            continue
        for run in () if found is None else results(found):
            copies_us = instance.copies_us(run.candidates)
            assert run.total_us == pytest.approx(math.fsum((*map(instance.price_us, run.candidates), copies_us))), seed
            copied += copies_us > 0
    assert copied > 0


def test_the_same_seed_runs_the_same_plans() -> None:
    case = a_case("wrong", 4)
    bound = a_bound(case, list(by_cost(case)), 4)

    first, _ = found_in(case, bound, seed=3)
    again, _ = found_in(case, bound, seed=3)

    assert first == again
    assert first.runs


@pytest.mark.parametrize("most_runs", [0, 1, 3])
def test_no_more_plans_are_run_than_asked_for(most_runs: int) -> None:
    for seed in range(8):
        case = a_case("sum", seed)
        plans = list(by_cost(case))

        found, laboratory = found_in(case, a_bound(case, plans, seed), most_runs=most_runs)

        assert len(laboratory.errors) == len(found.runs) <= most_runs
        if not most_runs:
            exact_us = next(cost_us for cost_us, plan in plans if case.error(plan) == 0)
            assert found.total_us == pytest.approx(exact_us)
            assert found.error == 0.0


def a_chain(length: int = 4) -> tuple[SearchProblem, list[float], list[float]]:
    """A chain with three kernels for each node, the cheaper the worse, none of them exact."""
    targets = [SearchTarget(name=name, toolchain="t") for name in ("high", "half", "low")]
    candidates = [
        SearchCandidate(nodes=1 << node, target=target.name, key=f"{target.name} {node}")
        for node in range(length)
        for target in targets
    ]
    predecessors = [[node - 1] if node else [] for node in range(length)]
    problem = SearchProblem.from_predecessors(predecessors, targets=targets, candidates=candidates)
    return problem, [10.0, 6.0, 3.0] * length, [0.1, 1.0, 5.0] * length


@pytest.mark.parametrize("error", [100.0, math.inf, math.nan])
def test_no_plan_is_returned_if_every_run_is_beyond_the_bound(error: float) -> None:
    laboratory = Laboratory(lambda _: error)

    assert learnt_bound_search(*a_chain(), 3.0, laboratory.run, most_runs=6) is None

    assert len(laboratory.errors) == 6


def test_a_bound_that_no_guess_keeps_to_is_tried_anyway() -> None:
    """Guesses are a hundred times too large: the plan with the least is run first, and tells so."""
    problem, costs_us, guesses = a_chain()
    true = dict(zip(problem.candidates, guesses, strict=True))
    laboratory = Laboratory(lambda plan: math.fsum(true[each] for each in plan) / 100)

    found = learnt_bound_search(problem, costs_us, guesses, 0.1, laboratory.run)

    assert found is not None
    assert found.error <= 0.1
    assert found.total_us < 40.0


def test_runs_without_any_error_lead_to_the_cheapest_plan() -> None:
    problem, costs_us, guesses = a_chain()

    found = learnt_bound_search(problem, costs_us, guesses, 0.5, Laboratory(lambda _: 0.0).run)

    assert found is not None
    assert (found.total_us, found.error) == (12.0, 0.0)


def test_a_known_plan_is_not_run_and_returned_if_it_is_the_cheapest_within_the_bound() -> None:
    problem, costs_us, guesses = a_chain()
    cheapest = tuple(each for each in problem.candidates if each.target == "low")
    laboratory = Laboratory(lambda _: 100.0)

    found = learnt_bound_search(problem, costs_us, guesses, 3.0, laboratory.run, known=[(cheapest, 2.5)])

    assert found is not None
    assert (found.candidates, found.total_us, found.error) == (cheapest, 12.0, 2.5)
    assert found.runs == ()


def test_a_plan_that_is_known_to_be_wrong_is_not_returned_though_its_guesses_are_0() -> None:
    problem, costs_us, guesses = a_chain()
    guesses = [0.0 if guess == 0.1 else guess for guess in guesses]
    exact = tuple(each for each in problem.candidates if each.target == "high")
    known = [(exact, 4.0)]

    assert learnt_bound_search(problem, costs_us, guesses, 3.0, lambda _: 5.0, known=known, most_runs=4) is None


def test_a_known_plan_with_a_kernel_that_was_not_measured_only_teaches() -> None:
    problem, costs_us, guesses = a_chain()
    costs = [
        UNMEASURED if each.target == "low" else cost for each, cost in zip(problem.candidates, costs_us, strict=True)
    ]
    cheapest = tuple(each for each in problem.candidates if each.target == "low")

    found = learnt_bound_search(problem, costs, guesses, 3.0, lambda _: 1.0, known=[(cheapest, 0.5)])

    assert found is not None
    assert found.total_us == 24.0


def test_known_plans_that_are_none_are_refused() -> None:
    problem, costs_us, guesses = a_chain()
    stranger = SearchCandidate(nodes=1, target="low", key="stranger")

    for plan in [(stranger,), problem.candidates[:2], problem.candidates]:
        with pytest.raises(ValueError, match="known plan"):
            learnt_bound_search(problem, costs_us, guesses, 3.0, lambda _: 0.0, known=[(plan, 0.0)])


@pytest.mark.parametrize(
    ("errors", "bound"), [([math.nan, 0.0, 0.0], 1.0), ([-1.0, 0.0, 0.0], 1.0), ([0.0] * 3, math.inf), ([0.0], 1.0)]
)
def test_guesses_that_are_none_are_refused(errors: list[float], bound: float) -> None:
    problem, costs_us, _ = a_chain(1)

    with pytest.raises(ValueError, match="errors"):
        learnt_bound_search(problem, costs_us, errors, bound, lambda _: 0.0)


def test_nodes_without_a_kernel_are_an_error() -> None:
    problem, costs_us, guesses = a_chain()

    with pytest.raises(NoCoverError):
        learnt_bound_search(problem, [INVALID] * len(costs_us), guesses, 3.0, lambda _: 0.0)


@pytest.mark.slow  # many exact searches
def test_a_long_chain_is_near_the_optimum_after_a_dozen_runs() -> None:
    """None of 300 candidates is as good as guessed, errors add up, and a dozen numbers cannot tell them all apart."""
    rng = random.Random(0)
    problem, _, _ = a_chain(100)
    costs_us = [cost_us * rng.uniform(0.8, 1.25) for _ in range(100) for cost_us in (10.0, 6.0, 3.0)]
    guesses = [guess * math.exp(rng.gauss(0, 0.5)) for _ in range(100) for guess in (0.0, 1.0, 5.0)]
    truths = [guess * math.exp(rng.gauss(0, 0.5)) for guess in guesses]
    true = dict(zip(problem.candidates, truths, strict=True))
    laboratory = Laboratory(lambda plan: math.fsum(true[each] for each in plan))

    found = learnt_bound_search(problem, costs_us, guesses, 60.0, laboratory.run, most_runs=12)

    wanted = bounded_search(problem, costs_us, truths, 60.0, within=0.001)
    assert found is not None
    assert wanted is not None
    assert found.error <= 60.0
    assert found.total_us <= wanted.lower_us * 1.1
    assert found.searches <= 2 + 4 * 12
