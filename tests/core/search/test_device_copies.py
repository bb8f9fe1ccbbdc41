"""Plans over several devices, by every search, against an oracle that runs them and notes every copy."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from collage_core.contract.cost import INVALID
from collage_core.errors import NoCoverError, SearchError
from collage_core.search import (
    CopyTable,
    CostTable,
    DeviceCopies,
    ExactSearch,
    FromNothing,
    Prepared,
    SearchCandidate,
    SearchLimits,
    SearchProblem,
    SearchResult,
    SearchTarget,
    SharedValue,
    lazy_search,
    prepare,
    search,
    solve,
)
from collage_core.search.copy_model import READS, CopyModel, Places, Traffic
from collage_core.search.layered import state_key
from collage_core.search.moves import Moves
from tests.core.search.devices import (
    DeviceInstance,
    SizedCosts,
    best_over_devices,
    device_rank,
    legal,
    random_device_instance,
)

STYLES = ("uniform", "adversarial")
PRUNED = SearchLimits(plain_states=0, widths=(1, 8))


def drawn(seed: int, style: str) -> DeviceInstance:
    return random_device_instance(random.Random(seed), style)


def from_lowest(problem: SearchProblem, plan: tuple[SearchCandidate, ...]) -> tuple[SearchCandidate, ...]:
    needs = problem.needs_kernel
    return tuple(sorted(plan, key=lambda c: c.nodes & needs & -(c.nodes & needs)))


def found_by(
    instance: DeviceInstance, prepared: Prepared | None = None, **options: Any
) -> tuple[SearchCandidate, ...] | None:
    """The plan found, in the order of its lowest nodes; None if there is none."""
    try:
        result = ExactSearch(prepared or instance.problem, instance.costs, **options).run()
    except NoCoverError:
        return None
    return from_lowest(instance.problem, result.candidates)


def compare(style: str, seeds: range) -> None:
    for seed in seeds:
        instance = drawn(seed, style)
        wanted = best_over_devices(instance)
        assert found_by(instance) == wanted, (style, seed)
        assert found_by(instance, limits=PRUNED) == wanted, (style, seed, "pruned")
        if wanted is not None:
            result = search(instance.problem, instance.costs)
            assert result.exact
            assert result.copies_us == instance.copies_us(wanted), (style, seed)
            assert result.total_us * 1e6 == pytest.approx(device_rank(instance, wanted)[0]), (style, seed)


@pytest.mark.parametrize("style", STYLES)
def test_the_plan_is_the_canonical_optimum_with_its_copies(style: str) -> None:
    compare(style, range(60))


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("block", range(4))
def test_the_plan_is_the_canonical_optimum_with_its_copies_at_length(style: str, block: int) -> None:
    compare(style, range(1000 + block * 300, 1000 + block * 300 + 300))


class PerReader(CopyModel):
    """Charges a copy for each kernel that reads, as if it were gone afterwards."""

    def advance(self, places: Places, traffic: Traffic, low: int, covered: int) -> tuple[int, Places] | None:
        moved = super().advance(places, traffic, low, covered)
        if moved is None:
            return None
        reads = {at for at, role in traffic.parts if role == READS}
        again = 0
        for at, source, wanted in places:
            if at in reads and source >= 0 and wanted >> traffic.device & 1:
                again += round(self.cost_us(at, source, traffic.device) * 1e6)
        return moved[0] + again, moved[1]


class WhenRead(CopyModel):
    """Charges only readers that are chosen after the kernel that computes what they read."""

    def _fee(self, at: int, source: int, wanted: int) -> int | None:
        return None if super()._fee(at, source, wanted) is None else super()._fee(at, source, wanted & self._ends[at])


class Eager(CopyModel):
    """Drops whatever is not the cheapest, however little it is behind."""

    def at_most_more(self, places: Places, other: Places) -> int | None:
        return 0


def with_accounting(instance: DeviceInstance, kind: type[CopyModel]) -> Prepared:
    prepared = prepare(instance.problem)
    if prepared.copies is None or instance.problem.copies is None:
        return prepared
    return dataclasses.replace(prepared, copies=kind(instance.problem, instance.problem.copies))


def with_costs(instance: DeviceInstance, starts_us: dict[str, float]) -> Prepared:
    assert instance.problem.copies is not None
    costs = SizedCosts(instance.copy_costs.latency_us, instance.copy_costs.us_per_byte, starts_us)
    copies = dataclasses.replace(instance.problem.copies, costs=costs)
    return prepare(dataclasses.replace(instance.problem, copies=copies))


def no_value_comes_home(instance: DeviceInstance) -> Prepared:
    return prepare(instance.with_values(lambda value: dataclasses.replace(value, ends_on="")).problem)


def values_of_no_size(instance: DeviceInstance) -> Prepared:
    return prepare(instance.with_values(lambda value: dataclasses.replace(value, size_bytes=0)).problem)


MUTANTS: dict[str, Callable[[DeviceInstance], dict[str, Any]]] = {
    "a copy for each reader": lambda i: {"prepared": with_accounting(i, PerReader)},
    "readers chosen before the kernel that computes": lambda i: {"prepared": with_accounting(i, WhenRead)},
    "places left out of the key": lambda i: {"key": lambda covered, pairs, places: state_key(covered, pairs, ())},
    "outputs not brought home": lambda i: {"prepared": no_value_comes_home(i)},
    "kernels started for nothing": lambda i: {"prepared": with_costs(i, starts_us={})},
    "sizes left out": lambda i: {"prepared": values_of_no_size(i)},
    "states dropped that copies may save": lambda i: {"prepared": with_accounting(i, Eager)},
    "copies left out": lambda i: {"prepared": prepare(dataclasses.replace(i.problem, copies=None))},
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_by_the_oracle(name: str) -> None:
    def deviates(seed: int, style: str) -> bool:
        instance = drawn(seed, style)
        return found_by(instance, **MUTANTS[name](instance)) != best_over_devices(instance)

    assert any(deviates(seed, style) for seed in range(80) for style in STYLES)  # those of the comparison above


@pytest.mark.parametrize("style", STYLES)
def test_the_integer_program_finds_the_same_optimum(style: str) -> None:
    for seed in range(12):
        instance = drawn(seed, style)
        wanted = best_over_devices(instance)
        if wanted is None:
            with pytest.raises(NoCoverError):
                solve(instance.problem, instance.costs)
            continue
        optimum_us = device_rank(instance, wanted)[0] / 1e6
        found = solve(instance.problem, instance.costs)
        assert found.total_us == pytest.approx(optimum_us, abs=1e-6), (style, seed)
        assert found.proves(optimum_us), (style, seed)
        assert not found.proves(optimum_us * 1.01 + 0.01)


class Growing:
    """Costs that are known once they were asked for."""

    def __init__(self, costs_us: dict[tuple[str, str], float]) -> None:
        self.truth = costs_us
        self.known: dict[tuple[str, str], float] = {}

    def measure(self, candidates: Sequence[SearchCandidate]) -> None:
        for each in candidates:
            self.known[each.target, each.key] = self.truth[each.target, each.key]

    def cost(self, candidate: SearchCandidate) -> Any:
        return CostTable(self.known).cost(candidate)


@pytest.mark.parametrize("style", STYLES)
def test_a_lazy_search_that_hopes_for_nothing_ends_at_the_optimum(style: str) -> None:
    for seed in range(20):
        instance = drawn(seed, style)
        wanted = best_over_devices(instance)
        costs = Growing(instance.costs_us)
        try:
            found = lazy_search(instance.problem, costs, FromNothing(), costs.measure).result
        except NoCoverError:
            found = None
        if wanted is None or found is None:
            assert (wanted, found) == (None, None), (style, seed)
            continue
        assert found.exact
        assert from_lowest(instance.problem, found.candidates) == wanted, (style, seed)
        assert found.copies_us == instance.copies_us(wanted)


@pytest.mark.parametrize("style", STYLES)
def test_the_gap_of_a_stopped_search_holds(style: str) -> None:
    limits = SearchLimits(max_states=2, plain_states=2, widths=(1, 2, 4))
    stopped = 0
    for seed in range(30):
        instance = drawn(seed, style)
        wanted = best_over_devices(instance)
        try:
            result = ExactSearch(instance.problem, instance.costs, limits=limits).run()
        except SearchError:
            continue  # the limits left no plan
        assert wanted is not None
        optimum_us = device_rank(instance, wanted)[0] / 1e6
        assert result.total_us - result.gap_us <= optimum_us + 1e-6
        assert result.total_us * 1e6 == pytest.approx(device_rank(instance, result.candidates)[0])
        stopped += not result.exact
    assert stopped


def test_moves_make_every_plan_whose_copies_are_possible_and_no_other() -> None:
    refused = 0
    for seed in range(60):
        instance = drawn(seed, "adversarial")
        moves = Moves(instance.problem)
        for plan in itertools.islice(legal(instance), 20):
            possible = instance.copies_us(plan) < INVALID
            refused += not possible
            assert (moves.arranged(list(plan)) is not None) is possible, seed
    assert refused


CPU = SearchTarget(name="c", toolchain="c")
GPU = SearchTarget(name="g@x", toolchain="g", device="x")


def chain(
    costs: list[tuple[float, float]], copy_us: float, *, home: str = "cpu", back: float | None = None
) -> SearchResult:
    """A chain of nodes, each with a price on the CPU and on the device."""
    count = len(costs)
    values = [SharedValue(producer=None, readers=1, size_bytes=4, starts_on=home)] if home else []
    for node in range(count):
        readers = 1 << node + 1 if node + 1 < count else 0
        values.append(SharedValue(producer=node, readers=readers, size_bytes=4, ends_on="" if readers else home))
    both = {("cpu", "x"): copy_us, ("x", "cpu"): copy_us if back is None else back}
    problem = SearchProblem.from_predecessors(
        [[node - 1] if node else [] for node in range(count)],
        targets=[CPU, GPU],
        candidates=[SearchCandidate(nodes=1 << n, target=t.name, key=f"{n}") for n in range(count) for t in (CPU, GPU)],
        copies=DeviceCopies(values=tuple(values), costs=CopyTable(both)),
    )
    table = {(t.name, f"{n}"): cost[at] for n, cost in enumerate(costs) for at, t in enumerate((CPU, GPU))}
    return search(problem, CostTable(table))


def test_a_short_stretch_on_the_device_is_not_worth_two_copies_and_a_long_one_is() -> None:
    assert chain([(10, 7), (10, 7)], copy_us=4).targets == {"c"}

    long = chain([(10, 7)] * 5, copy_us=4)

    assert (long.targets, long.total_us, long.copies_us) == (frozenset({"g@x"}), 43.0, 8.0)
    assert [(c.value, c.source, c.destination) for c in long.copies] == [(0, "cpu", "x"), (5, "x", "cpu")]


def test_what_the_caller_gives_and_takes_on_the_device_costs_no_copy() -> None:
    resident = chain([(10, 7), (10, 7)], copy_us=4, home="")

    assert (resident.targets, resident.total_us, resident.copies) == (frozenset({"g@x"}), 14.0, ())


@pytest.mark.parametrize(("start_us", "where"), [(5.0, "g@x"), (7.0, "c")])
def test_what_the_caller_gives_starts_kernels_once_however_many_values_it_is(start_us: float, where: str) -> None:
    given = [SharedValue(producer=None, readers=1, size_bytes=4, starts_on="cpu") for _ in range(3)]
    costs = SizedCosts({("cpu", "x"): 1.0, ("x", "cpu"): 0.0}, 0.0, {"x": start_us})
    problem = SearchProblem.from_predecessors(
        [[]],
        targets=[CPU, GPU],
        candidates=[SearchCandidate(nodes=1, target=target.name, key="k") for target in (CPU, GPU)],
        copies=DeviceCopies(values=tuple(given), costs=costs),
    )

    result = search(problem, CostTable({("c", "k"): 10.0, ("g@x", "k"): 1.0}))

    assert result.targets == {where}
    assert result.total_us == pytest.approx(min(10.0, 1.0 + 3 * 1.0 + start_us))


def test_a_device_that_nothing_comes_back_from_takes_no_part() -> None:
    assert chain([(10, 1)] * 3, copy_us=1, back=INVALID).targets == {"c"}


def test_a_value_read_many_times_is_copied_once() -> None:
    readers = 6
    values = (
        SharedValue(producer=0, readers=0b1111110, size_bytes=4),
        *(SharedValue(producer=node, readers=0, size_bytes=4) for node in range(1, readers + 1)),
    )
    problem = SearchProblem.from_predecessors(
        [[]] + [[0]] * readers,
        targets=[CPU, GPU],
        candidates=[SearchCandidate(nodes=1, target="c", key="0")]
        + [SearchCandidate(nodes=1 << n, target="g@x", key="1") for n in range(1, readers + 1)],
        copies=DeviceCopies(values=values, costs=CopyTable({("cpu", "x"): 5.0})),
    )

    result = search(problem, CostTable({("c", "0"): 1.0, ("g@x", "1"): 1.0}))

    assert (result.total_us, result.copies_us, len(result.copies)) == (12.0, 5.0, 1)


def test_one_device_has_nothing_of_copies_in_its_states() -> None:
    instance = drawn(3, "uniform")
    targets = tuple(dataclasses.replace(target, device="cpu") for target in instance.problem.targets)
    alone = dataclasses.replace(instance.problem, targets=targets)
    plain = dataclasses.replace(alone, copies=None)

    assert prepare(alone).copies is None
    assert search(alone, instance.costs) == search(plain, instance.costs)


class Nonsense:
    def __init__(self, copy_us: float, start_us: float) -> None:
        self._copy_us, self._start_us = copy_us, start_us

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> float:
        return self._copy_us

    def start_us(self, device: str) -> float:
        return self._start_us


@pytest.mark.parametrize(
    ("costs", "complaint"),
    [
        (Nonsense(-1.0, 0.0), "copy of 4 bytes from cpu to x"),
        (Nonsense(1.0, -1.0), "start of kernels on cpu"),
        (Nonsense(1.0, INVALID), "start of kernels on cpu: it is not finite"),
    ],
)
def test_a_cost_of_a_copy_or_a_start_that_is_none_is_an_error(costs: Nonsense, complaint: str) -> None:
    value = SharedValue(producer=None, readers=1, size_bytes=4, starts_on="cpu")
    problem = SearchProblem.from_predecessors(
        [[]],
        targets=[GPU],
        candidates=[SearchCandidate(nodes=1, target="g@x", key="k")],
        copies=DeviceCopies(values=(value,), costs=costs),
    )

    with pytest.raises(ValueError, match=complaint):
        prepare(problem)


def test_a_value_is_computed_or_given() -> None:
    with pytest.raises(ValueError, match="computed by a node or given"):
        SharedValue(producer=None, readers=1, size_bytes=4)
    with pytest.raises(ValueError, match="computed by a node or given"):
        SharedValue(producer=0, readers=1, size_bytes=4, starts_on="cpu")


def test_a_view_computes_no_value() -> None:
    with pytest.raises(ValueError, match="needs no kernel"):
        SearchProblem.from_predecessors(
            [[]],
            targets=[],
            candidates=[],
            host=1,
            copies=DeviceCopies(values=(SharedValue(producer=0, readers=0, size_bytes=4),), costs=CopyTable({})),
        )
