"""Precision under a bound with real toolchains, against functions evaluated one by one by the reference."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.build.plan_builder import PlanBuilder
from collage.options import OptimizeOptions
from collage.precision import within_bound as searching
from collage.precision.plans.bound import MARGIN, Bound
from collage.precision.plans.plan_errors import PlanErrors
from collage.precision.plans.plan_runs import PlanRuns
from collage.precision.sensitivity.calibrators import headroom
from collage.precision.sensitivity.groups import ProductGroup, product_groups, products_of
from collage.precision.sensitivity.prober import Choice, Prober
from collage.precision.sensitivity.samples import Samples
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.precision.within_bound import within_bound
from collage.reference import Evaluation, discrepancy_of
from collage.reference.evaluator import evaluate
from collage.report.progress import SilentProgress
from collage.setup.environment import Environment
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.contract import Cost, Joins, Target, Unmeasured
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.fusion.kernel import kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import quantisable
from collage_testing import GraphBuilder
from tests.precision_counts import most_within

pytestmark = pytest.mark.plugins("onnxruntime", "openvino")

BOUND = 0.05
FRAGILE = 2
"""Number of the product that does not bear 8 bits."""
Opened = Environment[Workload]


def runs_of(environment: Opened) -> PlanRuns:
    return PlanRuns(environment, PlanBuilder(environment, SilentProgress()))


def layers() -> onnx_ir.Model:
    """Four layers of equal work. The third reads rows of which one element in 32 is a thousand times the others."""
    g = GraphBuilder("layers")
    value = g.input("x", 64, 32)
    wide = np.ones(32, np.float32)
    wide[0] = 1000.0
    for number in range(4):
        if number == FRAGILE:
            value = g.op("Mul", value, g.constant("wide", wide))
        weight = np.random.default_rng(number).normal(size=(32, 32)).astype(np.float32)
        if number == FRAGILE:
            weight /= wide[:, None]
        value = g.op("Tanh", g.op("MatMul", value, g.constant(f"w{number}", weight / 6)))
    return g.model(value)


@pytest.fixture(scope="module")
def environment() -> Iterator[Opened]:
    choices = SetupChoices.of(
        OptimizeOptions(
            max_error=BOUND,
            tuning_db="memory:",
            preset="quick",
            toolchains="onnxruntime,openvino,openvino(precision=int8),onnxruntime(precision=int8)",
        )
    )
    with Environment.open(functools.partial(Workload, layers()), choices) as opened:
        yield opened


@pytest.fixture(scope="module")
def targets(environment: Opened) -> dict[str, Target]:
    return {target.name: target for target in environment.toolchains.targets()}


@pytest.fixture(scope="module")
def samples(environment: Opened, targets: dict[str, Target]) -> Samples:
    return Samples(environment, targets["openvino"])


@pytest.fixture(scope="module")
def groups(environment: Opened, samples: Samples) -> tuple[ProductGroup, ...]:
    return product_groups(environment.graph, samples.ranges())


@pytest.fixture(scope="module")
def sensitivities(environment: Opened, groups: tuple[ProductGroup, ...], targets: dict[str, Target]) -> Sensitivities:
    prober = Prober(environment, groups, targets["openvino"])
    each = [1 << number for number in range(len(groups))]
    return Sensitivities(
        groups=groups,
        int8=prober.errors([Choice(int8=mask) for mask in each]),
        bf16=prober.errors([Choice(bf16=mask) for mask in each]),
    )


def whole(environment: Opened, sensitivities: Sensitivities, target: Target, *chosen: int) -> CandidateKernel:
    return sensitivities.quantised(environment.graph, environment.pool.whole, target, chosen)


def plan_of(environment: Opened, kernel: CandidateKernel) -> Plan:
    return Plan(
        name="trial",
        single=True,
        partitioning=Partitioning(environment.graph, (kernel,)),
        costs_us=(1.0,),
        dispatch_us=0.0,
    )


def right(environment: Opened, function: onnx_ir.Model | None, inputs: dict[str, Any]) -> Evaluation:
    return evaluate(environment.graph.model if function is None else function, inputs)


def error_by_reference(environment: Opened, kernel: CandidateKernel, inputs: dict[str, Any]) -> float:
    """Evaluate the kernel's own function, and compare its output with the model's."""
    name = environment.graph.model.graph.outputs[0].name
    made = right(environment, kernel_function(kernel.sub_graph, "k").model, inputs).values[str(name)]
    return discrepancy_of(made, right(environment, None, inputs).values[str(name)]).error


def test_ranges_are_those_of_all_samples_and_headroom(environment: Opened, samples: Samples) -> None:
    found = samples.ranges()

    wanted: dict[int, list[np.ndarray[Any, Any]]] = {}
    for inputs in environment.workload.calibration:
        values = right(environment, None, dict(inputs)).values
        for index, node in enumerate(environment.graph.nodes):
            if (product := quantisable(node)) is not None:
                wanted.setdefault(index, []).append(np.asarray({**inputs, **values}[str(product.activation.name)]))
    assert len(environment.workload.calibration) == 8
    assert found.keys() == wanted.keys()
    for index, span in found.items():
        extremes = np.array([(-np.min(each), np.max(each)) for each in wanted[index]], np.float64)
        low, high = extremes.max(axis=0) + headroom(extremes)
        assert span.low == pytest.approx(-low, rel=1e-3)
        assert span.high == pytest.approx(high, rel=1e-3)


def test_ranges_that_are_known_are_not_looked_for_again(
    environment: Opened, samples: Samples, targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = samples.ranges()
    monkeypatch.setattr(Samples, "_run", None)

    assert Samples(environment, targets["openvino"]).ranges() == known


@pytest.mark.parametrize("number", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 4))])
def test_the_probe_finds_what_a_quantised_product_does_to_the_outputs(
    environment: Opened, sensitivities: Sensitivities, targets: dict[str, Target], number: int
) -> None:
    kernel = whole(environment, sensitivities, targets["openvino(precision=int8)"], number)

    wanted = error_by_reference(environment, kernel, dict(environment.workload.inputs))

    assert sensitivities.int8[number] == pytest.approx(wanted, rel=0.02)
    assert 0 < sensitivities.bf16[number] < sensitivities.int8[number]


def test_the_probe_finds_what_a_weight_in_8_bits_does_to_the_outputs(
    environment: Opened, sensitivities: Sensitivities, targets: dict[str, Target]
) -> None:
    prober = Prober(environment, sensitivities.groups, targets["openvino"])
    numbers = range(len(sensitivities.groups))
    found = prober.errors([Choice(weights=1 << number) for number in numbers])
    known = dataclasses.replace(sensitivities, weights=dict(zip(numbers, found, strict=True)))
    target = Target(
        toolchain="openvino", options=(("precision", "int8-weights"),), fingerprint="x", joins=Joins.ANY, exact=False
    )

    for number in numbers:
        kernel = whole(environment, known, target, number)
        assert [each.span for each in kernel.sub_graph.int8] == [None]
        wanted = error_by_reference(environment, kernel, dict(environment.workload.inputs))
        assert found[number] == pytest.approx(wanted, rel=0.02)
    assert found[FRAGILE] < sensitivities.int8[FRAGILE] / 4, "its activation is what does not bear 8 bits"


def test_the_product_that_does_not_bear_8_bits_stays_as_it_is(
    environment: Opened, sensitivities: Sensitivities, targets: dict[str, Target]
) -> None:
    target = targets["openvino(precision=int8)"]

    count = most_within(sensitivities, environment.graph, environment.pool.whole, target, BOUND)

    assert set(sensitivities.by_price(target)[:count]) == {0, 1, 2, 3} - {FRAGILE}
    assert most_within(sensitivities, environment.graph, environment.pool.whole, target, 0.0) == 0
    assert most_within(sensitivities, environment.graph, environment.pool.whole, target, 1e9) == 4


@pytest.mark.parametrize("symmetric", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["openvino(precision=int8)", "onnxruntime(precision=int8)"])
def test_the_error_of_a_plan_is_that_of_its_functions(
    environment: Opened,
    samples: Samples,
    sensitivities: Sensitivities,
    targets: dict[str, Target],
    name: str,
    symmetric: bool,
) -> None:
    """Both toolchains run the symmetric form, too, which others need."""
    if targets[name].on_request and targets[name].toolchain == "openvino":
        pytest.skip("OpenVINO's sums of 8-bit products saturate on this CPU, which functions do not tell")
    errors = PlanErrors(environment, runs_of(environment), samples)
    target = dataclasses.replace(targets[name], symmetric=symmetric)
    kernel = whole(environment, sensitivities, target, 0, 1, 3)

    found = errors(plan_of(environment, kernel))

    assert not found.reason
    wanted = max(error_by_reference(environment, kernel, dict(each)) for each in environment.workload.calibration)
    # a library may round an activation to the neighbouring integer where two are as near
    assert found.error == pytest.approx(wanted, rel=0.25)


def test_kernels_within_the_bound_are_found_and_the_next_run_measures_nothing(
    environment: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, pool = environment.source, environment.pool
    exact = [target for target in environment.toolchains.targets() if target.exact and target.mixable]
    nothing = Sensitivities(groups=(), int8=(), bf16=())
    wholes = [whole(environment, nothing, target) for target in exact]
    source.measure(wholes)
    pool = pool.with_candidates(wholes)
    pool = pool.with_costs(pool.costs.reaching(pool.cache_key(each) for each in wholes))
    cost = source.cost

    def cheap(candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        """Return a cost by which lower precision pays: how fast integers are here decides nothing in this test."""
        known = cost(candidate, confirmed=confirmed)
        return known if isinstance(known, Unmeasured) or candidate.target.exact else known / 1000

    monkeypatch.setattr(source, "cost", cheap)

    def search() -> searching.WithinBound:
        return within_bound(environment, runs_of(environment), pool, Bound(BOUND), "minmax", SilentProgress())

    first = search()
    measured = source.counts.measured
    for name in ("samples", "prober"):
        monkeypatch.delattr(f"collage.precision.sensitivity.{name}.run_series")
    second = search()

    assert source.counts.measured == measured, "the tuning database knows everything"
    assert first.errors == second.errors
    low = [each for each in first.pool if not each.target.exact]
    quantised = [each for each in low if each.target.quantises]
    assert quantised, "faster than anything exact, and within the bound"
    assert all(len(each.sub_graph.int8) == 3 for each in quantised), "all but the one that does not bear it"
    assert all(first.errors[plan_of(environment, each).key] <= MARGIN * BOUND for each in low)


def test_a_model_that_is_quantised_already_stays_as_it_is() -> None:
    g = GraphBuilder("quantised")
    x, scale, zero = g.input("x", 4, 8), g.constant("s", np.float32(0.1)), g.constant("z", np.uint8(128))
    wide = g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero), scale, zero)
    graph = DataflowGraph(g.model(g.op("MatMul", wide, g.weight("w", 8, 8))))

    assert products_of(graph) == []
    assert products_of(DataflowGraph(layers())) != []


def test_a_product_that_reads_nothing_but_zeros_is_named_and_not_quantised() -> None:
    g = GraphBuilder("silent")
    x = g.input("x", 4, 8)
    nothing = g.op("Mul", x, g.constant("none", np.zeros(8, np.float32)))
    value = g.op("Add", g.op("MatMul", nothing, g.weight("a", 8, 8)), g.op("MatMul", x, g.weight("b", 8, 8)))
    choices = SetupChoices.of(OptimizeOptions(max_error=BOUND, tuning_db="memory:", toolchains="openvino"))
    with Environment.open(functools.partial(Workload, g.model(value)), choices) as opened:
        target = next(each for each in opened.toolchains.targets() if each.exact)
        samples = Samples(opened, target)

        assert len(samples.ranges()) == 1
        [name] = samples.without_range()
        assert quantisable(opened.graph.nodes[opened.graph.index_of(name)]) is not None


def test_outputs_that_are_constants_or_compared_with_the_same_value_are_no_obstacle() -> None:
    g = GraphBuilder("outputs")
    logits = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 8))
    model = g.model(logits, g.op("Softmax", logits), g.constant("c", np.array([1.0, 2.0], np.float32)))
    choices = SetupChoices.of(
        OptimizeOptions(max_error=BOUND, tuning_db="memory:", toolchains="openvino,openvino(precision=int8)")
    )
    with Environment.open(functools.partial(Workload, model), choices) as opened:
        found = {each.name: each for each in opened.toolchains.targets()}
        samples = Samples(opened, found["openvino"])
        groups = product_groups(opened.graph, samples.ranges())
        [error] = Prober(opened, groups, found["openvino"]).errors([Choice(int8=1)])
        assert error > 0
        kernel = whole(
            opened, Sensitivities(groups=groups, int8=[error], bf16=[0.0]), found["openvino(precision=int8)"], 0
        )

        run = PlanErrors(opened, runs_of(opened), samples)(plan_of(opened, kernel))

        assert not run.reason
        assert run.error > 0
