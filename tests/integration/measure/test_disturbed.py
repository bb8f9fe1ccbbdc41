"""What disturbs a measurement from outside is not held against the candidate."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.child import ChildProcess
from collage.measure.driver.client import Worker
from collage.measure.driver.settings import MeasureSettings
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.driver.worker_pool import WorkerPool, database_cache
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import BuildSettings, Failed, Measured, Stage, Tolerance
from collage.setup.inputs.random_arrays import random_inputs
from collage.store import MAX_ATTEMPTS, MemoryStore, TuningStore
from collage.store.errors import DatabaseDamagedError, DatabaseDiskError
from collage_core.contract import UNMEASURED, Protocol
from tests.integration.measure.conftest import SOURCE, add_ask
from tests.integration.measure.sourcing import candidate, chain, faulty_target


@dataclasses.dataclass
class Bench:
    """A source over a store of its own."""

    source: MeasuringCostSource
    pool: WorkerPool
    store: BlobStore
    database: TuningStore


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store, database = BlobStore(tmp_path / "blobs"), MemoryStore()
    with WorkerPool([SOURCE], store, cache=database_cache(database)) as pool:
        graph = chain()
        capture = Capture.take(graph.model, random_inputs(graph, seed=0), store)
        source = MeasuringCostSource(
            pool=pool,
            capture=lambda: capture,
            database=database,
            host=this_host(),
            settings=MeasureSettings(
                build=BuildSettings(threads=1, max_variants=2),
                protocol=Protocol(warmup_s=0, duration_s=0.005, min_samples=3, min_sample_us=10),
                tolerance=Tolerance(relative=1e-4),
                deadline_s=3600.0,
            ),
        )
        yield Bench(source, pool, store, database)


def interrupts(*_: object) -> None:
    raise KeyboardInterrupt


def finds_the_disk_full(*_: object) -> None:
    raise DatabaseDiskError("db", "the disk is full")


@pytest.mark.guards(
    "Ctrl-C, or a full disk, again and again during one candidate: while the reference runs first, while "
    "it is measured, while its record is written",
    "it stays as good as any: an attempt counts as killing only if nobody could end it",
    area="kills and databases",
)
@pytest.mark.parametrize(
    ("place", "disturbs"),
    [
        ((Worker, "_listen"), interrupts),  # while the worker builds and times
        ((Capture, "expected_of"), interrupts),  # while the reference runs the whole model, and tensors are written
        ((MemoryStore, "append"), interrupts),
        ((MemoryStore, "append"), finds_the_disk_full),
    ],
)
def test_an_interrupted_candidate_is_no_poison(
    bench: Bench,
    place: tuple[type, str],
    disturbs: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user who presses Ctrl-C again and again does not lose the candidate by it, whatever was going on."""
    wanted = candidate(chain(), 0)
    with monkeypatch.context() as patch:
        patch.setattr(*place, disturbs)
        for _ in range(MAX_ATTEMPTS + 1):
            with pytest.raises((KeyboardInterrupt, DatabaseDiskError)):
                bench.source.measure([wanted])
            assert bench.database.attempts(bench.source.record_key(wanted)) == 0
    assert bench.source.cost(wanted) is UNMEASURED

    bench.source.measure([wanted])

    assert isinstance(bench.source.outcome(wanted), Measured)


@pytest.mark.guards(
    "a worker dies of an earlier request's thread before it reads the next",
    "started again, the candidate is measured",
    area="toolchains",
)
def test_a_worker_that_dies_of_an_earlier_request_costs_no_candidate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a thread that a library left behind: the worker was seen to live, and is gone before it reads the next."""
    started, left = Worker._started, [signal.SIGKILL]

    def started_and_killed(worker: Worker) -> ChildProcess:
        child = started(worker)
        if left:
            os.kill(child.pid, left.pop())
        return child

    monkeypatch.setattr(Worker, "_started", started_and_killed)
    wanted = candidate(chain(), 0)

    bench.source.measure([wanted])

    assert isinstance(bench.source.outcome(wanted), Measured)


@pytest.mark.guards(
    "a blob of the run's scratch folder is deleted or altered",
    "found when a process first uses it; the candidate is skipped in this run, nothing is recorded against it",
    area="kills and databases",
)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(bytes(path.stat().st_size))])
def test_a_blob_that_is_gone_or_altered_is_not_recorded_as_the_candidates_failure(
    bench: Bench, damage: Callable[[Path], None]
) -> None:
    wanted = candidate(chain(), 0)
    bench.source.measure([candidate(chain(), 3)])  # so that everything is in the store
    bench.pool.close()  # a worker that looked through a blob need not do so again
    request = add_ask(bench.store, faulty_target())
    [weight] = request.function.weights
    damage(bench.store.path(weight))

    bench.source.measure([wanted])

    outcome = bench.source.outcome(wanted)
    assert isinstance(outcome, Failed)
    assert outcome.stage is Stage.START
    assert weight in outcome.reason
    assert bench.database.records(bench.source.record_key(wanted)) == ()


@pytest.mark.guards("the disk of the temporary files becomes full while a model is measured")
def test_a_full_disk_in_a_worker_is_not_recorded_as_the_candidates_failure(bench: Bench) -> None:
    wanted = candidate(chain(), 0, "finds-the-disk-full")

    bench.source.measure([wanted])

    outcome = bench.source.outcome(wanted)
    assert isinstance(outcome, Failed)
    assert "No space left on device" in outcome.reason
    assert bench.database.records(bench.source.record_key(wanted)) == ()
    assert bench.source.transient == (outcome,)


@pytest.mark.guards(
    "a cached blob is damaged when a toolchain asks for it",
    "the run ends with one message; nothing is overwritten",
    area="kills and databases",
)
def test_a_cached_blob_that_was_altered_ends_the_run_and_is_kept(tmp_path: Path) -> None:
    class Altered(MemoryStore):
        def get_blob(self, *_: object) -> bytes | None:
            raise DatabaseDamagedError("db", "blob 'timings' of faulty is not what was put there")

    store = BlobStore(tmp_path)
    worker = Worker(SOURCE, store, cache=database_cache(Altered()))
    try:
        with pytest.raises(DatabaseDamagedError, match="Move it away to start afresh"):
            worker.measure(add_ask(store, faulty_target("caches")))
        assert worker.pid is None
    finally:
        worker.close()
