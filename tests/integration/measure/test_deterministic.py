"""`--deterministic`, from the option to the variant: what wavers is left out, what does nothing else refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import Built, Measured, Refused
from collage.options import OptimizeOptions
from collage.setup.inputs.random_arrays import random_inputs
from collage.setup.settings import measure_settings
from collage.store import MemoryStore
from collage_core.contract import INVALID, UNMEASURED, Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.measure.conftest import add_ask, add_function

SOURCE = PluginSource(toolchain="wavering", plugin="wavering_plugin:plugin", paths=(str(Path(__file__).parent),))


def target(variants: str) -> Target:
    return Target(toolchain="wavering", options=(("variants", variants),), fingerprint="wavering 1")


@pytest.fixture(scope="module")
def worker(store: BlobStore) -> Iterator[Worker]:
    worker = Worker(SOURCE, store)
    yield worker
    worker.close()


def asked(store: BlobStore, variants: str, *, deterministic: bool = True, limit: int = 2) -> AskMeasure:
    ask = add_ask(store, target(variants), variants=limit)
    return dataclasses.replace(ask, build=dataclasses.replace(ask.build, deterministic=deterministic))


def test_the_fastest_wins_unless_the_same_bits_are_asked_for(worker: Worker, store: BlobStore) -> None:
    free = worker.measure(asked(store, "other+same", deterministic=False))
    bound = worker.measure(asked(store, "other+same"))

    assert isinstance(free, Measured)
    assert isinstance(bound, Measured)
    assert (free.variant, free.deterministic) == ("other", False)
    assert (bound.variant, bound.deterministic) == ("same", True)
    assert bound.discarded == (
        "other: equal inputs may give other bits each time, and --deterministic asks for the same",
    )


def test_what_is_passed_over_does_not_count_as_tried(worker: Worker, store: BlobStore) -> None:
    outcome = worker.measure(asked(store, "other+other+same", limit=1))

    assert isinstance(outcome, Measured)
    assert outcome.variant == "same"


def test_a_candidate_of_wavering_variants_only_is_refused(worker: Worker, store: BlobStore) -> None:
    for variants in ("other", "other+other"):
        assert worker.measure(asked(store, variants)) == Refused(
            reason="equal inputs may give other bits each time, and --deterministic asks for the same"
        )


def test_a_variant_that_only_says_it_were_deterministic_is_found_out(worker: Worker, store: BlobStore) -> None:
    alone = worker.measure(asked(store, "secret"))
    free = worker.measure(asked(store, "secret", deterministic=False))

    assert alone == Refused(reason="it gave other bits when run again, and --deterministic asks for the same")
    assert isinstance(free, Measured)
    assert (free.repeatable, free.deterministic) == (False, False)


def test_where_the_model_asks_for_chance_other_bits_are_no_fault(worker: Worker, store: BlobStore) -> None:
    ask = asked(store, "secret")

    assert isinstance(worker.measure(dataclasses.replace(ask, expected=(None,))), Measured)


def test_what_is_built_is_deterministic_too(worker: Worker, store: BlobStore) -> None:
    ask = asked(store, "other+same", limit=1)
    built = worker.build(
        AskBuild(
            target=ask.target,
            function=ask.function,
            variant=None,
            inputs=(),
            expected=(),
            build=ask.build,
            tolerance=ask.tolerance,
            deadline_s=ask.deadline_s,
        )
    )

    assert isinstance(built, Built)
    assert (built.artifact.variant, built.artifact.metadata["told"]) == ("same", "told")


# Records


class Sources:
    """Cost sources over one database, with and without `--deterministic`.

    Args:
        pool: The worker.
        graph: One addition.
        capture: Its values.
    """

    def __init__(self, pool: WorkerPool, graph: DataflowGraph, capture: Capture) -> None:
        self._pool = pool
        self._graph = graph
        self._capture = capture
        self._database = MemoryStore()

    def __call__(self, *, deterministic: bool) -> MeasuringCostSource:
        options = OptimizeOptions(deterministic=deterministic, warmup=1, iterations=5, duration_s=0.01)
        settings = measure_settings(options, threads=1)
        return MeasuringCostSource(
            pool=self._pool,
            capture=lambda: self._capture,
            database=self._database,
            host=this_host(),
            settings=dataclasses.replace(settings, build=dataclasses.replace(settings.build, max_variants=2)),
        )

    def candidate(self, variants: str) -> CandidateKernel:
        spec = FusionSpec(name=variants, rule=OpCallByKindRule(), targets=(target(variants),))
        return CandidateKernel(SubGraph(self._graph, self._graph.all_mask), spec)


@pytest.fixture
def sources(store: BlobStore) -> Iterator[Sources]:
    graph = DataflowGraph(add_function().model)
    with WorkerPool([SOURCE], store) as pool:
        yield Sources(pool, graph, Capture.take(graph.model, random_inputs(graph, seed=0), store))


def test_records_of_either_kind_serve_the_other_where_they_say_something(sources: Sources) -> None:
    free, bound = sources(deterministic=False), sources(deterministic=True)
    mixed, sure = sources.candidate("other+same"), sources.candidate("same")

    free.measure([mixed, sure])

    assert free.variant(mixed) == "other"
    assert bound.cost(mixed) is UNMEASURED  # the fastest was another variant
    assert bound.cost(sure) == free.cost(sure)  # which is deterministic, so it is the fastest of those
    bound.measure([mixed, sure])
    assert (bound.variant(mixed), bound.counts.measured) == ("same", 1)
    again = sources(deterministic=False)
    assert (again.variant(mixed), again.cost(mixed)) == ("other", free.cost(mixed))
    assert again.cost(mixed) != bound.cost(mixed)


def test_what_was_refused_for_wavering_is_measured_where_that_may_be(sources: Sources) -> None:
    free, bound = sources(deterministic=False), sources(deterministic=True)
    wavering = sources.candidate("other")

    bound.measure([wavering])

    assert bound.cost(wavering) == INVALID
    assert "--deterministic" in getattr(bound.outcome(wavering), "reason", "")
    assert free.cost(wavering) is UNMEASURED
    free.measure([wavering])
    assert free.variant(wavering) == "other"
    assert sources(deterministic=True).cost(wavering) == INVALID


def test_confirming_keeps_to_deterministic_variants(sources: Sources) -> None:
    bound, mixed = sources(deterministic=True), sources.candidate("other+same")

    bound.measure([mixed])
    bound.measure([mixed], "confirm")

    assert bound.is_confirmed(mixed)
    assert bound.variant(mixed) == "same"
    assert not sources(deterministic=False).is_confirmed(mixed)
