"""Precisions of one toolchain are targets of their own: each has its measurement and its own error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.client import PluginSource
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Built, Failed, Measured, Refused
from collage.options import OptimizeOptions
from collage.setup.inputs.random_arrays import random_inputs
from collage.setup.settings import measure_settings
from collage.store import MemoryStore, TuningStore
from collage_core.contract import INVALID, PRECISIONS, Target, Unmeasured
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_testing import GraphBuilder
from collage_testing.kit.fake_time import MISS_BYTES_PER_US

SOURCE = PluginSource(
    toolchain="far",
    plugin="device_plugin:precise",
    devices=(("fake", "device_plugin:large"),),
    paths=(str(Path(__file__).parent),),
)
PLAIN = Target(toolchain="far", device="fake:0", fingerprint="far 1")
ROUNDED = dataclasses.replace(PLAIN, exact=False, rounds=frozenset(PRODUCTS))
FP16, BF16 = (dataclasses.replace(ROUNDED, options=(("precision", each),)) for each in PRECISIONS)


@pytest.fixture(scope="module")
def pool(store: BlobStore) -> Iterator[WorkerPool]:
    with WorkerPool([SOURCE], store) as pool:
        yield pool


def dense(weight: float = 1.0) -> DataflowGraph:
    g = GraphBuilder("dense")
    w = g.constant("w", np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32) * np.float32(weight))
    return DataflowGraph(g.model(g.op("MatMul", g.input("x", 8, 64), w)))


def candidate(graph: DataflowGraph, target: Target) -> CandidateKernel:
    spec = FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
    return CandidateKernel(SubGraph(graph, graph.all_mask), spec)


def source(
    pool: WorkerPool,
    graph: DataflowGraph,
    store: BlobStore,
    options: OptimizeOptions,
    database: TuningStore | None = None,
) -> MeasuringCostSource:
    return MeasuringCostSource(
        pool=pool,
        capture=lambda: Capture.take(graph.model, random_inputs(graph, seed=0), store),
        database=database or MemoryStore(),
        host=this_host(),
        settings=measure_settings(options, threads=1),
    )


OPTIONS = OptimizeOptions(rtol=1e-5, max_error=1e-3, warmup=1, iterations=3, duration_s=0.01)


def test_each_precision_has_its_own_error_and_only_what_is_allowed_is_used(pool: WorkerPool, store: BlobStore) -> None:
    graph = dense()
    costs = source(pool, graph, store, OPTIONS)

    costs.measure([candidate(graph, target) for target in (PLAIN, FP16, BF16)])

    plain, half, brain = (costs.outcome(candidate(graph, target)) for target in (PLAIN, FP16, BF16))
    assert isinstance(plain, Measured)
    assert isinstance(half, Measured)
    assert plain.error < 1e-6
    # rounding two factors of 64 products each by half an eps of 2^-10, some of which cancel
    assert 1e-5 < half.error < 2**-10
    assert isinstance(brain, Failed)  # 2^-7 is more than was allowed
    assert "allowed 0.001" in brain.reason
    assert costs.cost(candidate(graph, BF16)) == INVALID
    keys = {costs.record_key(candidate(graph, target)).target for target in (PLAIN, FP16, BF16)}
    assert len(keys) == 3


def test_what_holds_no_product_is_measured_once_for_all_precisions_and_built_for_each(
    pool: WorkerPool, store: BlobStore
) -> None:
    g = GraphBuilder("no product")
    graph = DataflowGraph(g.model(g.op("Softmax", g.op("Relu", g.input("x", 8, 64)))))
    database = MemoryStore()
    costs = source(pool, graph, store, OPTIONS, database)
    half, brain, plain = (candidate(graph, target) for target in (FP16, BF16, PLAIN))

    costs.measure([half])  # nobody asked for the plain target, and it is the one that is measured
    costs.measure([brain, plain])

    assert costs.counts.measured == 1
    [record] = database.records(costs.record_key(half))
    assert record.key.target == "far@fake:0"
    assert record.extra["tolerance"] == OPTIONS.rtol  # the plain target's, not what is allowed of products
    cost = costs.cost(plain)
    assert not isinstance(cost, Unmeasured)
    assert costs.cost(half) == costs.cost(brain) == cost < INVALID
    built = [costs.build(each, costs.variant(each)) for each in (half, brain, plain)]
    artifacts = [each.artifact for each in built if isinstance(each, Built)]
    assert artifacts == [artifacts[0]] * 3  # the same kernel


def test_weights_of_half_the_size_are_had_twice_as_often_so_that_the_cache_has_none(
    pool: WorkerPool, store: BlobStore
) -> None:
    graph = dense()
    costs = source(pool, graph, store, OPTIONS)

    costs.measure([candidate(graph, target) for target in (PLAIN, FP16)])

    for target, weights_bytes, copies in ((PLAIN, 64 * 32 * 4, 3), (FP16, 64 * 32 * 2, 5)):
        found = costs.outcome(candidate(graph, target))
        assert isinstance(found, Measured)
        assert found.weight_copies == copies  # all but one fill 16 KiB
        cold_us = 1.0 + weights_bytes / MISS_BYTES_PER_US
        assert found.samples_us == pytest.approx([cold_us] * len(found.samples_us))


def test_a_weight_out_of_range_is_a_refusal_that_names_it(pool: WorkerPool, store: BlobStore) -> None:
    graph = dense(weight=1e5)
    costs = source(pool, graph, store, dataclasses.replace(OPTIONS, max_error=0.02))

    costs.measure([candidate(graph, FP16), candidate(graph, BF16)])

    refused = costs.outcome(candidate(graph, FP16))
    assert isinstance(refused, Refused)
    assert "has a number of magnitude" in refused.reason
    assert "float16 ends at 6.55e+04" in refused.reason
    assert isinstance(costs.outcome(candidate(graph, BF16)), Measured)
