"""What becomes of candidates that fail, kill their worker or find no memory, and when they are tried again."""

from __future__ import annotations

import math

import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.driver.settings import MeasureSettings
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.driver.worker_pool import WorkerPool, database_cache
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Built, Failed, Measured, Refused, Stage, Tolerance
from collage.measure.worker.judge_version import JUDGE
from collage.store import MAX_ATTEMPTS, MemoryStore, TuningRecord, TuningStore
from collage_core.candidates.refusals import Rejection
from collage_core.contract import INVALID, UNMEASURED
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.measure.conftest import SOURCE
from tests.integration.measure.sourcing import Make, candidate


def test_a_candidate_that_killed_earlier_runs_is_left_alone(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    source, add = make(), candidate(graph, 0)
    for _ in range(MAX_ATTEMPTS):
        database.begin_attempt(source.record_key(add))

    source.measure([add])

    outcome = source.outcome(add)
    assert isinstance(outcome, Failed)
    assert "kills what measures it" in outcome.reason
    assert make().cost(add) == INVALID


def test_what_killed_runs_with_another_version_of_the_plugin_is_tried(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    add = candidate(graph, 0)
    for _ in range(MAX_ATTEMPTS):
        database.begin_attempt(make(plugin="1").record_key(add))
    source = make(plugin="2")

    source.measure([add])

    assert isinstance(source.outcome(add), Measured)


def test_what_killed_earlier_runs_is_tried_again_on_request(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    add = candidate(graph, 0)
    source = make(retry_failed=True)
    for _ in range(MAX_ATTEMPTS):
        database.begin_attempt(source.record_key(add))

    source.measure([add])

    assert isinstance(source.outcome(add), Measured)
    assert database.attempts(source.record_key(add)) == 0


def test_what_failed_is_tried_again_once_per_run_on_request(
    make: Make, graph: DataflowGraph, asked: list[AskMeasure | AskBuild]
) -> None:
    candidates = [candidate(graph, 0), candidate(graph, 0, "refuses"), candidate(graph, 0, "raises-in-run")]
    make().measure(candidates)
    assert len(asked) == 3

    source = make(retry_failed=True)
    assert [source.cost(each) is UNMEASURED for each in candidates] == [False, True, True]
    for _ in range(2):
        source.measure(candidates)

    assert len(asked) == 5
    assert [type(source.outcome(each)) for each in candidates] == [Measured, Refused, Failed]
    assert source.rejection(candidates[2]) == Rejection(stage="run", reason="RuntimeError: device lost")


def test_a_kernel_too_inexact_counts_as_failed_by_its_version_of_the_plugin(
    make: Make, graph: DataflowGraph, database: TuningStore
) -> None:
    add = candidate(graph, 0)
    database.append(
        TuningRecord(
            key=make(plugin="1").record_key(add),
            outcome="measured",
            purpose="select",
            created="2026-01-01T00:00:00+00:00",
            samples_us=(5.0,),
            error=1e-3,
            extra={"tolerance": 1e-2, "judge": JUDGE},
        )
    )

    costs = {
        (plugin, tolerance): make(tolerance, plugin=plugin).cost(add) for plugin in "12" for tolerance in (1e-4, 1e-2)
    }

    assert costs == {("1", 1e-4): INVALID, ("1", 1e-2): 5.0, ("2", 1e-4): UNMEASURED, ("2", 1e-2): 5.0}


@pytest.mark.guards("a kernel dies by SIGSEGV, `_exit`, or forks and exits with an orphan in a session of its own")
def test_what_kills_its_worker_is_tried_twice(
    make: Make, graph: DataflowGraph, database: TuningStore, asked: list[AskMeasure | AskBuild]
) -> None:
    source, add = make(), candidate(graph, 0, "segfaults")

    source.measure([add])

    outcome = source.outcome(add)
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("worker crash: killed by SIGSEGV")
    assert outcome.reason.endswith("(attempt 2)")
    assert len(asked) == 2
    assert len(database.records(source.record_key(add))) == 1
    later = make()
    later.measure([add])
    assert (len(asked), later.outcome(add)) == (2, outcome)


@pytest.mark.guards("a kernel dies by SIGSEGV, `_exit`, or forks and exits with an orphan in a session of its own")
def test_an_attempt_of_a_run_that_was_killed_counts(
    make: Make, graph: DataflowGraph, database: TuningStore, asked: list[AskMeasure | AskBuild]
) -> None:
    source, add = make(), candidate(graph, 0, "segfaults")
    database.begin_attempt(source.record_key(add))

    source.measure([add])

    assert len(asked) == 1
    assert database.attempts(source.record_key(add)) == 0
    assert make().cost(add) == INVALID


@pytest.mark.guards("`lower`, `load` or `measure` hangs")
def test_what_hangs_or_raises_is_tried_once(
    make: Make, graph: DataflowGraph, asked: list[AskMeasure | AskBuild]
) -> None:
    make().measure([candidate(graph, 0, "hangs"), candidate(graph, 0, "raises-in-run")])

    assert len(asked) == 2


@pytest.mark.guards("a kernel dies by SIGSEGV, `_exit`, or forks and exits with an orphan in a session of its own")
def test_a_worker_that_died_of_something_else_costs_nothing(
    graph: DataflowGraph, capture: Capture, store: BlobStore
) -> None:
    for purpose in ("measure", "build"):
        kept = MemoryStore()
        with WorkerPool([SOURCE], store, cache=database_cache(kept)) as pool:
            source = MeasuringCostSource(
                pool=pool,
                capture=lambda: capture,
                database=kept,
                host=this_host(),
                settings=MeasureSettings(build=BuildSettings(threads=1), tolerance=Tolerance(relative=1e-4)),
            )
            once = candidate(graph, 0, "dies-once")
            if purpose == "measure":
                source.measure([once])
                assert isinstance(source.outcome(once), Measured)
            else:
                assert isinstance(source.build(once), Built)


def test_a_failure_is_tried_again_when_more_is_allowed(make: Make, graph: DataflowGraph) -> None:
    wrong, slow = candidate(graph, 0, "wrong-element"), candidate(graph, 0, "hangs")
    strict, loose = make(), make(tolerance=0.5, deadline_s=3601.0)
    strict.measure([wrong, slow])

    assert [strict.cost(each) for each in (wrong, slow)] == [INVALID, INVALID]
    assert loose.cost(wrong) is UNMEASURED
    assert loose.cost(slow) is UNMEASURED
    loose.measure([wrong])
    assert 0 < loose.cost(wrong) < INVALID  # type: ignore[operator]
    assert make().cost(wrong) == INVALID
    assert isinstance(make().outcome(wrong), Failed)


def test_a_worker_that_does_not_start_says_nothing_about_candidates(
    make: Make, graph: DataflowGraph, database: TuningStore, capture: Capture, store: BlobStore
) -> None:
    settings = MeasureSettings(build=BuildSettings(threads=1))
    with WorkerPool([PluginSource(toolchain="faulty", plugin="absent_module:plugin")], store) as pool:
        source = MeasuringCostSource(
            pool=pool, capture=lambda: capture, database=database, host=this_host(), settings=settings
        )
        source.measure([candidate(graph, 0)])

        assert source.cost(candidate(graph, 0)) == INVALID
        assert "absent_module" in getattr(source.outcome(candidate(graph, 0)), "reason", "")
    assert make().cost(candidate(graph, 0)) is UNMEASURED


def no_memory(free: int) -> Failed:
    reason = f"DeviceMemoryError: device cuda:0: 12 bytes were asked for, {free} are free"
    return Failed(stage=Stage.BIND, reason=reason)


@pytest.mark.guards("a device has not the memory for lowering, for weights or code, for values, for a call")
def test_what_a_device_had_no_memory_for_is_tried_once_more_by_the_next_run(
    make: Make, graph: DataflowGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Failed] = []

    def measure(worker: Worker, ask: AskMeasure) -> Failed:
        asked.append(no_memory(free=len(asked)))
        return asked[-1]

    monkeypatch.setattr(Worker, "measure", measure)
    one = candidate(graph, 0)
    for attempts in (1, 2, 2):
        source = make()
        source.measure([one])
        source.measure([one])  # in one run that is how it is
        assert (source.cost(one), source.outcome(one), len(asked)) == (INVALID, asked[-1], attempts)


@pytest.mark.guards("a device has not the memory for lowering, for weights or code, for values, for a call")
def test_where_the_memory_is_free_again_the_next_run_has_a_cost(
    make: Make, graph: DataflowGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Measured(samples_us=(3.0,), warmup_runs=1, calls_per_sample=1)
    answers = iter([right, no_memory(free=8), right])
    monkeypatch.setattr(Worker, "measure", lambda worker, ask: next(answers))
    one = candidate(graph, 0)
    first, second = make(), make()
    first.measure([one])

    first.measure([one], "confirm")
    second.measure([one], "confirm")

    assert (first.cost(one), second.cost(one)) == (INVALID, 3.0)


def test_what_is_wrong_when_it_is_confirmed_is_not_selected_by_its_brief_samples_any_more(
    make: Make, graph: DataflowGraph
) -> None:
    source, add = make(), candidate(graph, 0, "wrong-from-call-100")
    source.measure([add], brief=True)
    selected = source.cost(add, confirmed=False)
    assert isinstance(selected, float)
    assert math.isfinite(selected)

    source.measure([add], "confirm")

    for knowing in (source, make()):
        assert knowing.cost(add) == knowing.cost(add, confirmed=False) == INVALID
        rejection = knowing.rejection(add)
        assert rejection is not None
        assert "wrong numbers after many calls" in rejection.reason
