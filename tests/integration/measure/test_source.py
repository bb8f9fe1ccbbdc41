"""Costs by measuring, over a real database, a real worker and a toolchain that misbehaves."""

from __future__ import annotations

import itertools
import math
import statistics
import time

import numpy as np
import onnx_ir
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from collage.devices.this_host import this_host
from collage.measure.driver import records
from collage.measure.driver.capture import Capture
from collage.measure.driver.client import Worker
from collage.measure.driver.fallback import worker_fallback
from collage.measure.driver.repeats import LEAST, repeats_of
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.artifact_codec import artifact_of
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import Built, Failed, Measured, Refused
from collage.measure.worker.judge_version import JUDGE
from collage.setup.inputs.random_arrays import random_inputs
from collage.store import MachineSpeed, TuningStore, block_times_us
from collage_core.contract import INVALID, UNMEASURED, Block, Protocol, Target, Unmeasured
from collage_core.fusion import (
    CandidateKernel,
    FusionSpec,
    SubGraph,
    kernel_function,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.measure.sourcing import Make, NoRule, candidate, faulty_target


def test_equal_candidates_are_measured_once(make: Make, graph: DataflowGraph) -> None:
    source = make()
    three = [candidate(graph, node) for node in range(3)]
    assert source.cost(three[0]) is UNMEASURED

    source.measure(three)

    costs = {source.cost(each) for each in three}
    assert len(costs) == 1
    [cost] = costs
    assert not isinstance(cost, Unmeasured)
    assert 0 < cost < INVALID
    assert source.counts.measured == 1


def test_what_the_database_has_is_not_measured_again(make: Make, graph: DataflowGraph) -> None:
    first, second = make(), make()
    candidates = [candidate(graph, 0), candidate(graph, 0, "refuses"), candidate(graph, 0, "raises-in-run")]
    steps: list[str] = []

    first.measure(candidates, progress=lambda step: steps.append(type(step.outcome).__name__))
    second.measure(candidates, progress=lambda step: steps.append("again"))

    assert steps == ["Measured", "Refused", "Failed"]
    assert (second.counts.measured, second.counts.cache_hits) == (0, 3)
    assert [second.outcome(each) for each in candidates] == [first.outcome(each) for each in candidates]
    assert [type(second.outcome(each)) for each in candidates] == [Measured, Refused, Failed]
    assert [second.cost(each) == INVALID for each in candidates] == [False, True, True]


def test_fresh_samples_displace_those_that_selected(make: Make, graph: DataflowGraph, database: TuningStore) -> None:
    source, add = make(), candidate(graph, 0)
    source.measure([add])
    [selected] = database.records(source.record_key(add), "select")

    source.measure([add], purpose="confirm")
    confirmed = database.records(source.record_key(add), "confirm")

    assert len(confirmed) == 1
    assert confirmed[0].samples_us != selected.samples_us
    assert source.cost(add) == statistics.median(
        block_times_us(confirmed[0].samples_us, confirmed[0].blocks, source.usual_calibration_us)
    )


def test_it_is_remembered_how_far_measurements_repeat(make: Make, graph: DataflowGraph, database: TuningStore) -> None:
    source, add = make(), candidate(graph, 0)
    source.measure([add])
    costs_us = [statistics.median(source.medians_us(add))]
    for _ in range(LEAST):
        assert repeats_of(database, source.record_key(add)).interval(100.0) is None
        source.measure([add], "confirm")
        last = database.records(source.record_key(add))[-1]
        costs_us.append(statistics.median(block_times_us(last.samples_us, last.blocks, source.usual_calibration_us)))

    found = repeats_of(database, make().record_key(add)).interval(100.0)  # another run over the same database

    largest = max(abs(math.log(after / before)) for before, after in itertools.pairwise(costs_us))
    assert found is not None
    assert found == pytest.approx((100.0 * math.exp(-largest), 100.0 * math.exp(largest)))


def test_samples_are_taken_in_blocks_beside_the_calibration_kernel(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    source, add = make(), candidate(graph, 0)
    source.measure([add])

    [record] = database.records(source.record_key(add))

    assert len(record.blocks) == len(source.medians_us(add)) == Protocol().blocks
    assert source.usual_calibration_us == MachineSpeed.of(record.blocks).calibration_us


def test_a_brief_measurement_takes_the_first_blocks_only(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    source, add = make(), candidate(graph, 0)
    source.measure([add], brief=True)
    source.measure([add], "confirm")

    brief, full = database.records(source.record_key(add))

    assert (len(brief.blocks), len(full.blocks)) == (2, 5)
    assert len(brief.samples_us) < len(full.samples_us)
    for record in (brief, full):
        assert 0 < record.extra["timed_s"] < record.extra["seconds"]


def test_a_worker_is_told_how_long_to_wait_for_other_load(
    make: Make, graph: DataflowGraph, asked: list[AskMeasure | AskBuild]
) -> None:
    make(load_wait_s=0.01).measure([candidate(graph, 0)])

    assert [ask.load_wait_s for ask in asked if isinstance(ask, AskMeasure)] == [0.01]


@pytest.mark.parametrize(("waited_s", "is_running"), [(0.0, True), (1e6, False)])
def test_waiting_for_other_load_is_not_running(
    waited_s: float, is_running: bool, make: Make, graph: DataflowGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Measured(samples_us=(3.0,), warmup_runs=1, calls_per_sample=1, waited_s=waited_s)

    def measured(worker: Worker, ask: AskMeasure) -> Measured:
        time.sleep(0.01)
        return outcome

    monkeypatch.setattr(Worker, "measure", measured)
    source, add = make(), candidate(graph, 0)

    source.measure([add])

    assert (source.ran_s(add) > 0) == is_running


def test_the_machines_speed_is_found_out_once_and_all_costs_are_at_that_speed(
    make: Make, graph: DataflowGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(us: float, calibration_us: float) -> Measured:
        block = Block(samples=1, calibration_us=calibration_us)
        return Measured(samples_us=(us,), warmup_runs=1, calls_per_sample=1, blocks=(block,))

    answers = iter([measured(3.0, 100.0), measured(8.0, 400.0)])
    monkeypatch.setattr(Worker, "measure", lambda worker, ask: next(answers))
    first, second, add, multiply = make(), make(), candidate(graph, 0), candidate(graph, 3)
    assert first.usual_calibration_us is None

    first.measure([add])
    second.measure([multiply])  # the machine has half the speed: the calibration kernel feels it twice

    for source in (first, second, make()):
        assert source.usual_calibration_us == 100.0
        assert (source.cost(add), source.cost(multiply)) == (3.0, 4.0)


def test_what_a_clock_of_its_own_says_is_the_cost_as_it_is(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    source, own = make(), candidate(graph, 0, "own-clock")
    source.measure([candidate(graph, 0), own])

    assert source.usual_calibration_us is not None
    assert source.cost(own) == 42.0
    assert database.records(source.record_key(own))[0].blocks == ()


def test_confirming_measures_the_variant_that_was_selected(make: Make, graph: DataflowGraph) -> None:
    source, add = make(), candidate(graph, 0, "second-variant-fast")
    source.measure([add])
    source.measure([add], purpose="confirm")

    outcome = source.outcome(add)

    assert source.variant(add) == "second"
    assert isinstance(outcome, Measured)
    assert outcome.variant == "second"


def test_a_variant_of_another_version_of_the_plugin_is_not_asked_for(
    make: Make, graph: DataflowGraph, asked: list[AskMeasure | AskBuild]
) -> None:
    add = candidate(graph, 0, "second-variant-fast")
    make(plugin="1").measure([add])
    source = make(plugin="2")
    assert (make(plugin="1").variant(add), source.variant(add)) == ("second", None)
    assert source.is_outdated(add)

    source.measure([add], "confirm")

    assert [ask.variant for ask in asked] == [None, None]
    assert (source.variant(add), source.is_confirmed(add), source.is_outdated(add)) == ("second", True, False)
    assert not make(plugin="3").is_confirmed(add)


def test_what_another_judge_let_through_is_measured_once_more_when_it_is_confirmed(
    make: Make, graph: DataflowGraph, asked: list[AskMeasure | AskBuild], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = candidate(graph, 0)
    with monkeypatch.context() as before:
        before.setattr(records, "JUDGE", JUDGE - 1)
        for purpose in ("select", "confirm"):
            make().measure([add], purpose)

    source = make()
    source.measure([add])
    assert (len(asked), source.is_outdated(add), source.is_confirmed(add)) == (2, True, False)

    source.measure([add], "confirm")

    assert (len(asked), source.is_outdated(add), source.is_confirmed(add)) == (3, False, True)


def test_a_call_site_is_built_with_its_own_weights_and_checked(
    make: Make, graph: DataflowGraph, pool: WorkerPool
) -> None:
    source = make()

    built = source.build(candidate(graph, 0))
    multiplied = source.build(candidate(graph, 3))

    assert isinstance(built, Built)
    weight = artifact_of(built.artifact, pool.store).files["w.bin"]
    np.testing.assert_array_equal(np.frombuffer(weight, np.float32), np.arange(512, dtype=np.float32))
    assert isinstance(multiplied, Failed)
    assert "wrong numbers" in multiplied.reason


def test_a_call_site_of_several_plans_is_built_once_if_it_is_right(
    make: Make, graph: DataflowGraph, asked: list[AskMeasure | AskBuild]
) -> None:
    source = make()
    first, alike, wrong = (candidate(graph, node) for node in (0, 1, 3))
    loaded = source.build(first, check=False)
    checked = source.build(first)
    assert isinstance(loaded, Built)
    assert len(asked) == 2

    assert source.build(first) is source.build(first, check=False) is checked
    assert len(asked) == 2
    source.build(alike)
    source.build(first, "another variant")
    assert len(asked) == 4
    for _ in range(2):
        assert isinstance(source.build(wrong), Failed)
    assert len(asked) == 6


def test_what_the_reference_cannot_compute_a_worker_does(worker: Worker, store: BlobStore) -> None:
    model = onnx_ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21, "vendor" : 1]>
        g (float[512] x) => (float[512] z) { y = vendor.Add(x, w)  z = Neg(y) }"""
    )
    w = next(value for value in model.graph[0].inputs if value is not None and value.name == "w")
    w.const_value = onnx_ir.tensor(np.ones(512, np.float32), name="w")
    model.graph.initializers["w"] = w
    y = model.graph[0].outputs[0]
    y.dtype, y.shape = onnx_ir.DataType.FLOAT, onnx_ir.Shape([512])
    graph = DataflowGraph(model)
    x = np.linspace(0, 1, 512, dtype=np.float32)

    capture = Capture.take(
        graph.model,
        {"x": x},
        store,
        fallback=worker_fallback(worker, graph, this_host(), store, threads=1, deadline_s=3600, target=faulty_target()),
    )

    np.testing.assert_allclose(capture.value("z"), -(x + 1), rtol=1e-6)
    assert list(capture.unchecked) == [model.graph[0].name]


def test_random_outputs_are_not_compared(store: BlobStore) -> None:
    model = onnx_ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[8] x) => (float[8] y, float[8] z) {
            r = RandomNormalLike(x)  y = Add(x, r)  z = Neg(x) }"""
    )
    graph = DataflowGraph(ShapeInferencePass()(model).model)
    capture = Capture.take(graph.model, random_inputs(graph, seed=0), store)
    function = kernel_function(SubGraph(graph, graph.all_mask), "k")
    expected = dict(
        zip(
            [spec.name for spec in function.outputs],
            capture.expected_of(function, graph, graph.all_mask),
            strict=True,
        )
    )

    assert expected["y"] is None
    assert expected["z"] == capture.wire("z")


def test_a_target_names_its_own_records(make: Make, graph: DataflowGraph) -> None:
    newer = Target(toolchain="faulty", fingerprint="faulty 2")
    source, add = make(), candidate(graph, 0)
    spec = FusionSpec(name="newer", rule=NoRule(), targets=(newer,))

    source.measure([add])

    assert source.cost(CandidateKernel(add.sub_graph, spec)) is UNMEASURED
