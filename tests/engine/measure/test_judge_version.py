"""What another version of the judge said of a kernel's numbers counts as what another version of its plugin did."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.recorded import RecordedCosts
from collage.measure.driver.records import Limits, to_record, usable_records
from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.outcomes import BuildSettings, Failed, Measured, Outcome, Refused, Stage, Tolerance
from collage.measure.worker.judge_version import JUDGE
from collage.store import MemoryStore, Purpose, RecordKey, TuningRecord
from collage_core.contract import INVALID, UNMEASURED, Target
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import kernel

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LIMITS = Limits(tolerance=Tolerance(), deadline_s=60.0)
MORE_ALLOWED = Limits(tolerance=Tolerance(relative=0.1), deadline_s=60.0)
PLUGIN = "collage-a 1.0"
RIGHT = Measured(samples_us=(5.0,), warmup_runs=1, calls_per_sample=1, error=1e-6)
INEXACT = dataclasses.replace(RIGHT, error=1e-2)
"""Let through where more was allowed."""
WRONG = Failed(stage=Stage.CHECK, reason="wrong numbers")
CRASHED = Failed(stage=Stage.RUN, reason="worker crash")


class Known:
    """Costs of a kernel by records of this and of another judge."""

    def __init__(self, plugin: str = PLUGIN) -> None:
        self.database = MemoryStore()
        graph = DataflowGraph(chain("Relu", "Exp"))
        self.candidate: CandidateKernel = kernel(graph, Target(toolchain="a", fingerprint="1"), "relu_0")
        self.source = RecordedCosts(
            capture=_no_capture,
            database=self.database,
            host=this_host(),
            settings=MeasureSettings(build=BuildSettings(threads=1)),
            plugins={"a": plugin},
        )
        self.key: RecordKey = self.source.record_key(self.candidate)

    def add(self, outcome: Outcome, purpose: Purpose = "select", judge: int | None = JUDGE) -> None:
        self.database.append(record(self.key, outcome, purpose, judge))
        self.source.read_anew(self.key)


def _no_capture() -> Capture:
    raise AssertionError("nothing depends on values")


def record(key: RecordKey, outcome: Outcome, purpose: Purpose = "select", judge: int | None = JUDGE) -> TuningRecord:
    made = to_record(outcome, key, purpose, NOW, MORE_ALLOWED if outcome is INEXACT else LIMITS)
    extra: dict[str, Any] = {**made.extra, "judge": judge}
    if judge is None:
        del extra["judge"]
    return dataclasses.replace(made, extra=extra)


OTHERS = (JUDGE - 1, JUDGE + 1, None)


@pytest.mark.parametrize("outcome", [RIGHT, WRONG, CRASHED, Refused(reason="no")])
def test_a_record_says_which_judge_made_it(outcome: Outcome) -> None:
    assert to_record(outcome, Known().key, "select", NOW, LIMITS).extra["judge"] == JUDGE


@pytest.mark.parametrize("judge", OTHERS)
@pytest.mark.parametrize("verdict", [WRONG, INEXACT])
def test_what_another_judge_found_wrong_is_measured_again(verdict: Outcome, judge: int | None) -> None:
    known = Known()
    known.add(verdict, judge=judge)

    assert known.source.cost(known.candidate) is UNMEASURED
    assert known.source.rejection(known.candidate) is None


@pytest.mark.parametrize("judge", OTHERS)
@pytest.mark.parametrize("outcome", [CRASHED, Refused(reason="no")])
def test_what_no_judge_had_a_say_in_stays(outcome: Outcome, judge: int | None) -> None:
    known = Known()
    known.add(outcome, judge=judge)

    assert known.source.cost(known.candidate) == INVALID


@pytest.mark.parametrize("judge", OTHERS)
def test_what_another_judge_let_through_counts_until_it_is_confirmed(judge: int | None) -> None:
    known = Known()
    known.add(RIGHT, judge=judge)
    known.add(RIGHT, "confirm", judge=judge)

    assert known.source.cost(known.candidate) == pytest.approx(5.0)
    assert not known.source.is_confirmed(known.candidate)
    assert known.source.is_outdated(known.candidate)

    known.add(RIGHT, "confirm")

    assert known.source.is_confirmed(known.candidate)
    assert not known.source.is_outdated(known.candidate)


def test_what_this_judge_finds_wrong_was_wrong_before() -> None:
    known = Known()
    known.add(RIGHT, judge=JUDGE - 1)
    known.add(WRONG, "confirm")

    assert known.source.cost(known.candidate) == INVALID
    assert known.source.is_confirmed(known.candidate)


@pytest.mark.parametrize("outcome", [RIGHT, WRONG, INEXACT])
def test_records_without_the_plugins_version_count_whoever_judged_them(outcome: Outcome) -> None:
    # those of archives, which are replayed by who knows no versions
    archived = Known(plugin="")
    archived.add(outcome, judge=None)
    archived.add(outcome, "confirm", judge=None)

    assert archived.source.cost(archived.candidate) == (pytest.approx(5.0) if outcome is RIGHT else INVALID)
    assert archived.source.is_confirmed(archived.candidate)
    assert not archived.source.is_outdated(archived.candidate)


def test_archived_failures_say_nothing_to_who_knows_versions() -> None:
    key = dataclasses.replace(Known().key, plugin="")

    found = usable_records([record(key, RIGHT, judge=None), record(key, WRONG, judge=None)], PLUGIN, LIMITS)

    assert [each.outcome for each in found] == ["measured"]
