"""A replay takes the steps of a search over recorded measurements, and makes only those that are missing."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models.__main__ import main as write_models
from benchmarks.replay.bench import Bench
from benchmarks.replay.records import again, long_run_us, resampled, seconds_of, shortened
from benchmarks.replay.source import LongRunCosts, Overlay, Replay
from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.settings import MeasureSettings
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import BuildSettings, Failed
from collage.options import OptimizeOptions
from collage.report.progress import SilentProgress
from collage.store import MemoryStore, Purpose, RecordKey, StoredDocument, TuningRecord
from collage_core.contract import INVALID, UNMEASURED, Block
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from tests.engine.exploring import a_target, kernel

KEY = RecordKey(structural_hash="h", target="a", fingerprint="a 1", host="here", threads=1, launch="", timing="t")


def record(*samples_us: float, key: RecordKey = KEY, purpose: Purpose = "select", second: int = 0) -> TuningRecord:
    return TuningRecord(
        key=key,
        outcome="measured" if samples_us else "refused",
        purpose=purpose,
        created=f"2026-01-01T00:00:{second:02}+00:00",
        samples_us=samples_us,
        reason="" if samples_us else "too wide",
        extra={"seconds": 0.5 + second},
    )


def test_a_resampling_draws_from_the_samples_and_is_the_same_each_time() -> None:
    taken = record(*(float(each) for each in range(100)))

    drawn = resampled(taken, 3)

    assert resampled(taken, None) is taken
    assert drawn == resampled(taken, 3) != resampled(taken, 4)
    assert len(drawn.samples_us) == 100
    assert set(drawn.samples_us) < set(taken.samples_us)
    assert dataclasses.replace(drawn, samples_us=taken.samples_us) == taken


def test_a_resampling_draws_whole_blocks() -> None:
    """A block of 10 us has samples of 100 and 101 us, and so on."""
    blocks = tuple(Block(samples=2, calibration_us=us) for us in (10.0, 20.0, 30.0))
    taken = dataclasses.replace(record(100.0, 101.0, 200.0, 201.0, 300.0, 301.0), blocks=blocks)

    draws = [resampled(taken, number) for number in range(20)]

    for drawn in draws:
        assert set(drawn.blocks) <= set(blocks)
        assert len(drawn.blocks) == 3
        assert [us // 100 for us in drawn.samples_us] == [
            block.calibration_us / 10 for block in drawn.blocks for _ in range(block.samples)
        ]
    assert len({drawn.blocks for drawn in draws}) > 1
    assert len({drawn.samples_us for drawn in draws}) > len({drawn.blocks for drawn in draws})


def test_a_refusal_is_not_resampled() -> None:
    assert resampled(record(), 3) == record()


def test_the_long_run_is_the_median_of_measurements_not_of_samples() -> None:
    """One long measurement on a slow machine does not outvote two on a fast one."""
    slow, fast, other = record(*[30.0] * 90), record(10.0, 11.0, 12.0), record(12.0, 13.0)

    assert long_run_us([slow, fast, other]) == 12.5
    assert statistics.median([*slow.samples_us, *fast.samples_us, *other.samples_us]) == 30.0


def test_the_long_run_is_at_the_machines_usual_speed() -> None:
    block = Block(samples=1, calibration_us=40.0)
    slow = dataclasses.replace(record(30.0), blocks=(block,))

    assert (long_run_us([slow], 10.0), long_run_us([slow])) == (15.0, 30.0)


def test_a_measurement_made_up_is_of_the_samples_that_there_are() -> None:
    taken = record(1.0, 2.0, 3.0)

    made = again([taken], "confirm", 1)

    assert made.purpose == "confirm"
    assert set(made.samples_us) <= {1.0, 2.0, 3.0}
    assert seconds_of(made) == seconds_of(taken) == 0.5


def of_blocks(count: int, **extra: float) -> TuningRecord:
    """Blocks of two samples of a second each."""
    taken = record(*(1e6 + at for at in range(2 * count)))
    blocks = tuple(Block(samples=2, calibration_us=float(1 + at)) for at in range(count))
    return dataclasses.replace(taken, blocks=blocks, extra={"seconds": 13.0, **extra})


@pytest.mark.parametrize("extra", [{"timed_s": 11.0}, {}, {"calls_per_sample": 1}])
def test_a_brief_measurement_is_the_first_blocks_and_takes_less_by_the_others(extra: dict[str, float]) -> None:
    """Of 13 s, one was warming up, ten took the samples, and two were for the rest."""
    brief = shortened(of_blocks(5, **extra), 2, 1.0)

    assert brief.samples_us == tuple(1e6 + at for at in range(4))
    assert [block.calibration_us for block in brief.blocks] == [1.0, 2.0]
    assert seconds_of(brief) == pytest.approx(13.0 - 6.0, abs=1e-3)


def test_what_has_no_more_blocks_is_as_brief_as_it_can_be() -> None:
    for taken in (of_blocks(2), record(5.0), record()):
        assert shortened(taken, 2, 0.1) is taken


class Case:
    """One operator for one target, and a database of it, over toolchains that measure nothing."""

    def __init__(self, folder: Path) -> None:
        g = GraphBuilder("one")
        graph = DataflowGraph(g.model(g.op("Relu", g.input("x", 4, 4))))
        self.candidate = kernel(graph, a_target("a"))
        self.store = MemoryStore()
        capture = Capture({}, BlobStore(folder), {})
        self.options: dict[str, Any] = {
            "capture": lambda: capture,
            "host": this_host(),
            "settings": MeasureSettings(build=BuildSettings(threads=1)),
        }
        self.pool = WorkerPool([], BlobStore(folder))
        self.key = LongRunCosts(database=self.store, **self.options).record_key(self.candidate)

    def fill(self, *records: TuningRecord) -> None:
        self.store.append_all(dataclasses.replace(each, key=self.key) for each in records)

    def replay(self, draw: int | None = None) -> Replay:
        return Replay(self.store, draw, live=(), pool=self.pool, **self.options)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_measurements_are_served_in_order_at_the_cost_of_their_seconds(case: Case) -> None:
    case.fill(record(5.0), record(7.0, purpose="confirm", second=1), record(9.0, purpose="confirm", second=2))
    replay = case.replay()

    assert replay.cost(case.candidate) == UNMEASURED
    replay.measure([case.candidate])
    assert (replay.cost(case.candidate), replay.seconds) == (5.0, 0.5)
    replay.measure([case.candidate])  # known now
    assert replay.seconds == 0.5
    replay.measure([case.candidate], "confirm")
    assert (replay.cost(case.candidate), replay.seconds) == (7.0, 2.0)
    assert replay.counts.measured == 2
    assert len(case.store.records(case.key)) == 3


def test_what_is_looked_at_briefly_is_served_in_part_and_confirmed_in_full(case: Case) -> None:
    case.fill(of_blocks(5), dataclasses.replace(of_blocks(5), purpose="confirm"))
    replay = case.replay()

    replay.measure([case.candidate], brief=True)
    assert len(replay.medians_us(case.candidate)) == 2
    assert replay.seconds < 8
    replay.measure([case.candidate], "confirm")
    assert len(replay.medians_us(case.candidate)) == 5


def test_records_of_another_way_of_timing_are_replayed_where_they_are_said_to_be(case: Case) -> None:
    other = dataclasses.replace(case.key, timing="another way")
    case.store.append(dataclasses.replace(record(5.0), key=other))
    replays = [
        Replay(case.store, None, timing=timing, live=(), pool=case.pool, **case.options)
        for timing in (None, "another way")
    ]

    for replay in replays:
        replay.measure([case.candidate])

    assert [replay.unknown for replay in replays] == [1, 0]
    assert replays[1].cost(case.candidate) == 5.0
    long_run = LongRunCosts("another way", database=case.store, **case.options)
    assert long_run.cost(case.candidate) == 5.0


def test_a_resampled_replay_serves_drawn_samples(case: Case) -> None:
    case.fill(record(*(float(each) for each in range(1, 100))))
    replays = [case.replay(draw) for draw in (None, 1, 1, *range(2, 8))]

    for replay in replays:
        replay.measure([case.candidate])

    costs = [replay.cost(case.candidate) for replay in replays]
    assert costs[0] == 50.0
    assert costs[1] == costs[2]
    assert len(set(costs)) > 2


def test_where_nothing_is_measured_a_known_candidate_is_confirmed_by_its_own_samples(case: Case) -> None:
    case.fill(record(5.0, 6.0, 7.0))
    replay = case.replay()

    replay.measure([case.candidate])
    replay.measure([case.candidate], "confirm")

    assert replay.is_confirmed(case.candidate)
    assert replay.cost(case.candidate) in (5.0, 5.5, 6.0, 6.5, 7.0)
    assert (replay.seconds, replay.unknown) == (1.0, 0)


def test_where_nothing_is_measured_an_unknown_candidate_fails_and_is_counted(case: Case) -> None:
    replay = case.replay()

    replay.measure([case.candidate])

    assert replay.cost(case.candidate) == INVALID
    assert isinstance(replay.outcome(case.candidate), Failed)
    assert (replay.unknown, replay.seconds) == (1, 0.0)


def test_what_is_found_out_once_is_found_out_for_all_replays(case: Case) -> None:
    document = StoredDocument(kind="profile", name="a", version=1, body={"us": [1, 2], "seconds": 1.5})

    Overlay(case.store).put_stored(document)

    overlay = Overlay(case.store)
    assert overlay.get_stored("profile", "b") is None
    assert overlay.others_s == {}
    assert overlay.get_stored("profile", "a") == overlay.get_stored("profile", "a") == document
    assert sum(overlay.others_s.values()) == 1.5
    assert Overlay(case.store).document_keys() == case.store.document_keys() == (("profile", "a"),)
    assert not list(Overlay(case.store).all_records())


def test_other_records_are_kept_in_the_database_and_cost_their_seconds_once(case: Case) -> None:
    """A search may measure something else of a candidate; later replays find it there."""
    other = dataclasses.replace(record(3.0, purpose="verify", second=3), key=case.key)
    case.fill(record(5.0))
    overlay = Overlay(case.store)

    overlay.append(other)

    assert case.store.records(case.key, "verify") == (other,)
    assert overlay.records(case.key, "select") == ()
    assert overlay.others_s == {}
    for _ in range(2):
        assert Overlay(case.store).records(case.key, "verify") == overlay.records(case.key, "verify") == (other,)
    assert overlay.others_s == {other.content_id: 3.5}
    assert overlay.records(case.key) == (other,)


def test_the_long_run_counts_every_measurement_and_refusals_stay(case: Case) -> None:
    costs = LongRunCosts(database=case.store, **case.options)
    assert costs.cost(case.candidate) == UNMEASURED

    case.fill(record(5.0), *(record(us, purpose="confirm", second=int(us)) for us in (8.0, 9.0)))
    costs.read_anew(case.key)

    assert costs.cost(case.candidate) == costs.cost(case.candidate, confirmed=False) == 8.0


def test_a_refusal_has_no_long_run_cost(case: Case) -> None:
    case.fill(record())

    assert LongRunCosts(database=case.store, **case.options).cost(case.candidate) == INVALID


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("mnist")
    write_models(["mnist", "--out", str(folder)])
    with Bench(folder / "mnist.onnx", QUICK, folder, SilentProgress()) as bench:
        yield bench


QUICK = OptimizeOptions(
    toolchains="onnxruntime", preset="quick", search="exact", warmup=1, iterations=3, duration_s=0.001
)


@pytest.mark.plugins
def test_a_replay_repeats_the_search_that_filled_the_database(bench: Bench) -> None:
    store = MemoryStore()
    explored, plans = bench.explored(QUICK, bench.source(store))
    replay = Replay(store, None, **bench.options)

    again, plans_again = bench.explored(QUICK, replay)

    assert replay.fresh == replay.unknown == 0
    assert again.result.total_us == explored.result.total_us
    assert [(plan.key, plan.predicted_us) for plan in plans_again] == [(plan.key, plan.predicted_us) for plan in plans]
    assert replay.seconds == pytest.approx(sum(map(seconds_of, store.all_records())))


@pytest.mark.plugins
def test_a_replay_measures_what_is_missing_and_keeps_it(bench: Bench) -> None:
    store = MemoryStore()
    first, second = Replay(store, None, **bench.options), Replay(store, 1, **bench.options)

    bench.explored(QUICK, first)
    bench.explored(QUICK, second)

    assert first.fresh == first.counts.measured > 10
    assert second.fresh <= 3  # what the resampling led elsewhere
    assert store.stats().records == first.fresh + second.fresh
