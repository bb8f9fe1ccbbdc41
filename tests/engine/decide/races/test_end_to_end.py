"""End-to-end timing over plans that are not built and contenders that do not run."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from collage.decide.races import race
from collage.decide.races.saved_races import SavedRace
from collage.devices.this_host import this_host
from collage.measure.budget import UNLIMITED, Budget
from collage.options import PRESETS
from collage.store import StoredDocument, TuningStore
from collage_core.contract import Device
from tests.engine.decide.racing import FAST, MIDDLE, MIXED, SLOW, A, B, C, Track, on, plan_of, timer

FAILED = {"reason": "why", "attempts": 1, "created": "2026-01-02T03:04:05+00:00"}


def test_a_race_that_a_budget_cut_short_is_run_anew_with_a_larger_one(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))

    def spent(seconds: float) -> Budget:
        return Budget.begin(seconds, began=-seconds, clock=lambda: 0.0)

    counts = []
    for budget in (spent(10.0), spent(10.0), spent(12.0), spent(13.0), UNLIMITED, spent(10.0), UNLIMITED):
        timer(database, tmp_path, budget=budget).timer.run([FAST, MIXED])
        counts.append(len(track.runs))

    assert counts == [1, 1, 1, 2, 4, 4, 4]


def test_a_race_that_ended_within_its_budget_counts_for_all(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))

    counts = []
    for budget in (Budget.begin(3600.0), Budget.begin(7200.0), UNLIMITED):
        timer(database, tmp_path, budget=budget).timer.run([FAST, MIXED])
        counts.append(len(track.runs))

    assert counts == [2, 2, 2]


def test_what_failed_too_often_is_not_tried_again_because_there_is_more_time(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))
    spent = Budget.begin(10.0, began=-10.0, clock=lambda: 0.0)
    for _ in range(2):
        timer(database, tmp_path, budget=spent, unbuildable="c").timer.run([FAST, MIXED, SLOW])
    longer = timer(database, tmp_path / "longer", unbuildable="c")

    timings = longer.timer.run([FAST, MIXED, SLOW])

    assert longer.tried == ["a", "mixed-1"]
    assert [each.end for each in timings.timed] == [PRESETS["quick"].rounds] * 2
    assert list(timings.failed) == ["c"]


def test_another_variant_of_a_kernel_is_another_race(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))

    counts = []
    for variants in ({"a": "tile 8"}, {"a": "tile 8"}, {"a": "tile 16"}, {}):
        timer(database, tmp_path, variants=variants).timer.run([FAST, MIXED])
        counts.append(len(track.runs))

    assert counts == [2, 2, 4, 6]


def test_every_plan_is_built_saved_and_timed(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (SLOW, 400.0), (MIXED, 90.0)]))
    bench = timer(database, tmp_path)

    timings = bench.timer.run([FAST, SLOW, MIXED])

    assert bench.saved == ["a", "c", "mixed-1"]
    assert track.runs == [["a", "c", "mixed-1"], ["a", "mixed-1"]]
    assert [(each.name, each.single, each.kernels, each.toolchains, len(each.rounds_us)) for each in timings.timed] == [
        ("a", True, 1, 1, PRESETS["quick"].rounds),
        ("c", True, 1, 1, race.FIRST_ROUNDS),
        ("mixed-1", False, 2, 2, PRESETS["quick"].rounds),
    ]


def test_plans_of_equal_kernels_are_timed_once_under_the_first_name(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = plan_of("openvino", A, B)
    track = on(monkeypatch, Track([(MIXED, 90.0), (single, 90.0)]))

    timings = timer(database, tmp_path).timer.run([single, MIXED])

    assert track.runs == [["openvino"]]
    assert [(each.name, each.single) for each in timings.timed] == [("openvino", True)]


def test_a_second_run_over_the_same_database_times_and_builds_nothing(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (SLOW, 400.0), (MIXED, 90.0)]))
    first = timer(database, tmp_path).timer.run([FAST, SLOW, MIXED])
    track = on(monkeypatch, Track([]))
    again = timer(database, tmp_path / "elsewhere")

    second = again.timer.run([MIXED, SLOW, FAST])

    assert track.runs == []
    assert again.saved == []
    assert {each.name: each for each in second.timed} == {each.name: each for each in first.timed}
    assert [each.called_us[0] for each in first.timed] == [(101.0, 101.0), (401.0, 401.0), (91.0, 91.0)]
    assert all(len(each.called_us) == len(each.rounds_us) for each in first.timed)


def test_a_calibration_beside_each_round_is_kept_and_says_nothing_of_a_device(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_device = plan_of("d", dataclasses.replace(C, device="cuda:0"))
    on(monkeypatch, Track([(FAST, 100.0), (on_device, 100.0)]))

    for folder in ("measured", "known"):
        host, device = timer(database, tmp_path / folder).timer.run([FAST, on_device]).timed

        assert host.calibrations_us == (1.0,) * len(host.rounds_us)
        assert device.calibrations_us == ()


def test_steps_are_timed_in_the_first_rounds_and_kept(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))

    for folder in ("measured", "known"):
        fast, mixed = timer(database, tmp_path / folder).timer.run([FAST, MIXED]).timed

        assert mixed.parts_us == ({"k0000": 45.0, "k0001": 45.0},) * race.FIRST_ROUNDS
        assert len(mixed.rounds_us) > race.FIRST_ROUNDS
        assert mixed.in_place_us(4.0) == {"k0000": 90.0, "k0001": 90.0}  # the root of four times the calibration
        assert mixed.in_place_us(None) == {}
        assert fast.parts_us


@pytest.mark.guards("the GPU's driver is updated, or the GPU exchanged")
def test_another_device_or_driver_is_another_race_for_plans_that_use_it(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = plan_of("d", dataclasses.replace(A, device="cuda:0"))
    old = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65", memory_bytes=1)
    hosts = [dataclasses.replace(this_host(), devices=(dataclasses.replace(old, driver=d),)) for d in ("580.65", "590")]
    track = on(monkeypatch, Track([(fast, 100.0), (MIDDLE, 200.0)]))

    for number, host in enumerate([*hosts, *hosts]):
        for plan in (fast, MIDDLE):
            timer(database, tmp_path / f"{number}-{plan.name}", host=host).timer.run([plan])

    raced = [names for names, _ in itertools.groupby(track.runs)]
    assert raced == [["d"], ["b"], ["d"]]


@pytest.mark.guards("what an import or a later version left in the database is not understood; JSON nested without end")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"called": {}, "calibrations_us": {}, "timed": None, "failed": {}},
        {"called": {}, "calibrations_us": {}, "timed": {FAST.key: []}, "failed": {}},
        {"called": {}, "calibrations_us": {}, "timed": {FAST.key: [[]]}, "failed": {}},
        {"called": {}, "calibrations_us": {}, "timed": {FAST.key: [[0.0]]}, "failed": {}},
        {"called": {}, "calibrations_us": {}, "timed": {FAST.key: [[1.0, "2"]]}, "failed": {}},
        {"called": {FAST.key: [[0.0]]}, "calibrations_us": {}, "timed": {FAST.key: [[1.0]]}, "failed": {}},
        {"called": {}, "calibrations_us": {FAST.key: [1.0, 1.0]}, "timed": {FAST.key: [[1.0]]}, "failed": {}},
        {"called": {}, "calibrations_us": {FAST.key: [0.0]}, "timed": {FAST.key: [[1.0]]}, "failed": {}},
        {"called": {}, "calibrations_us": {MIXED.key: []}, "timed": {FAST.key: [[1.0]]}, "failed": {}},
        {"called": {}, "calibrations_us": {}, "timed": {}, "failed": [FAST.key]},
        {"called": {}, "calibrations_us": {}, "timed": {}, "failed": {FAST.key: "why"}},
        {"called": {}, "calibrations_us": {}, "timed": {}, "failed": {FAST.key: {**FAILED, "reason": 1}}},
        {"called": {}, "calibrations_us": {}, "timed": {}, "failed": {FAST.key: {**FAILED, "attempts": "once"}}},
    ],
    ids=str,
)
def test_samples_of_another_make_are_taken_anew(
    body: dict[str, Any], database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0)]))
    timer(database, tmp_path).timer.run([FAST])
    [(kind, name)] = database.document_keys()
    database.put_stored(StoredDocument(kind=kind, name=name, version=SavedRace.VERSION, body=body))
    track = on(monkeypatch, Track([(FAST, 70.0)]))

    timings = timer(database, tmp_path).timer.run([FAST])

    assert track.runs
    assert [each.time_us for each in timings.timed] == [70.0]


@pytest.mark.parametrize("change", [{"model_key": "other"}, {"threads": 2}, {"tolerance": 0.1}], ids=str)
def test_another_model_number_of_threads_or_tolerance_is_timed_anew(
    change: dict[str, Any], database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0)]))
    timer(database, tmp_path).timer.run([FAST])
    track = on(monkeypatch, Track([(FAST, 70.0)]))

    timer(database, tmp_path, **change).timer.run([FAST])

    assert track.runs


def test_another_set_of_plans_is_timed_anew_against_each_other(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0)]))
    timer(database, tmp_path).timer.run([FAST])
    track = on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)]))

    timer(database, tmp_path).timer.run([FAST, MIXED])

    assert track.runs[0] == ["a", "mixed-1"]


def test_a_plan_that_cannot_be_built_fails_alone(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0)]))

    timings = timer(database, tmp_path, unbuildable="b").timer.run([FAST, MIDDLE])

    assert [each.name for each in timings.timed] == ["a"]
    assert "out of memory" in timings.failed["b"]


@pytest.mark.parametrize("when", [1, 2], ids=["first heat", "second heat"])
def test_a_plan_that_crashes_fails_alone(
    when: int, database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIXED, 90.0)], crashes={"mixed-1": when}))

    timings = timer(database, tmp_path).timer.run([FAST, MIXED])

    assert [each.name for each in timings.timed] == ["a"]
    assert timings.failed == {"mixed-1": "crash: signal 11"}


@pytest.mark.guards(
    "a whole plan cannot be built, or crashes while it is timed",
    "tried once more by the next run over the database, then given up",
    area="toolchains",
)
def test_a_plan_that_could_not_be_built_is_tried_once_more(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0)]))
    timer(database, tmp_path / "1", unbuildable="b").timer.run([FAST, MIDDLE])
    track = on(monkeypatch, Track([(FAST, 101.0), (MIDDLE, 80.0)]))

    timings = timer(database, tmp_path / "2").timer.run([FAST, MIDDLE])

    # all run again: samples of different races do not compare
    assert track.runs[0] == ["a", "b"]
    assert [(each.name, each.rounds_us[0][0]) for each in timings.timed] == [("a", 101.0), ("b", 80.0)]
    assert timings.failed == {}
    settled = on(monkeypatch, Track([]))
    assert timer(database, tmp_path / "3").timer.run([FAST, MIDDLE]).timed == timings.timed
    assert settled.runs == []


@pytest.mark.guards("a whole plan cannot be built, or crashes while it is timed")
def test_a_plan_that_can_never_be_built_is_given_up_and_costs_the_others_nothing(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0)]))
    first = timer(database, tmp_path / "1", unbuildable="b").timer.run([FAST, MIDDLE])
    track = on(monkeypatch, Track([]))
    tries, found = [], []

    for folder in ("2", "3"):
        tries.append(timer(database, tmp_path / folder, unbuildable="b"))
        found.append(tries[-1].timer.run([FAST, MIDDLE]))

    assert track.runs == []
    assert found[0] == first
    assert found[1].timed == first.timed
    assert found[1].failed["b"].startswith(f"{first.failed['b']}; known since 20")
    assert [each.tried for each in tries] == [["b"], []]


@pytest.mark.guards("a whole plan cannot be built, or crashes while it is timed")
def test_a_plan_that_crashed_in_the_race_runs_in_one_more(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0), (SLOW, 90.0)], crashes={"b": 1, "c": 1}))
    timer(database, tmp_path / "1").timer.run([FAST, MIDDLE, SLOW])
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0), (SLOW, 90.0)], crashes={"c": 1}))

    again = timer(database, tmp_path / "2").timer.run([FAST, MIDDLE, SLOW])
    track = on(monkeypatch, Track([]))
    last = timer(database, tmp_path / "3").timer.run([FAST, MIDDLE, SLOW])

    assert [each.name for each in again.timed] == ["a", "b"]
    assert again.failed == {"c": "crash: signal 11"}
    assert last.timed == again.timed
    assert list(last.failed) == ["c"]
    assert track.runs == []


def test_a_plan_that_was_given_up_is_tried_again_with_another_version_of_a_plugin(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0)]))
    versions = [{"b": "p 1"}] * 3 + [{"b": "p 2"}] * 3 + [{"b": "p 1"}, {"b": "p 2", "c": "q 2"}]
    tries = [
        timer(database, tmp_path / f"{number}", unbuildable="b", plugins=plugins)
        for number, plugins in enumerate(versions)
    ]

    for each in tries:
        each.timer.run([FAST, MIDDLE])

    assert [each.tried.count("b") for each in tries] == [1, 1, 0, 1, 1, 0, 0, 0]
    assert [names for names, _ in itertools.groupby(track.runs)] == [["a"]]


def test_a_plan_that_was_given_up_is_tried_again_on_request(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (MIDDLE, 80.0)]))
    for number in range(3):
        timer(database, tmp_path / f"{number}", unbuildable="b").timer.run([FAST, MIDDLE])
    still = timer(database, tmp_path / "still", unbuildable="b", retry_failed=True)

    for _ in range(3):
        assert still.timer.run([FAST, MIDDLE]).failed["b"].endswith("out of memory")
    mended = timer(database, tmp_path / "mended", retry_failed=True).timer.run([FAST, MIDDLE])

    assert still.tried == ["b", "b"]  # as often as any plan that fails
    assert (len(mended.timed), mended.failed) == (2, {})


def test_no_plan_at_all_is_an_answer(database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, Track([]))

    timings = timer(database, tmp_path, unbuildable="a").timer.run([FAST])

    assert timings.timed == ()
    assert list(timings.failed) == ["a"]


def test_without_a_wrong_plan_the_others_remain(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, Track([(FAST, 100.0), (SLOW, 400.0), (MIXED, 90.0)]))
    timings = timer(database, tmp_path).timer.run([FAST, SLOW, MIXED])

    once = timings.without("mixed-1", "wrong numbers")

    assert [each.name for each in once.timed] == ["a", "c"]
    assert once.failed == {"mixed-1": "wrong numbers"}
    assert once.without("a", "crash").without("c", "hang").timed == ()


def test_plans_whose_sizes_vary_have_them_in_turn_in_a_race_of_its_own(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (SLOW, 400.0)]))
    sizes = [{"n": 8}, {"n": 7}, {"n": 9}]

    counts = []
    for each in (sizes, sizes, [], [*sizes, {"n": 10}]):
        timer(database, tmp_path, sizes=each).timer.run([FAST, SLOW])
        counts.append(len(track.runs))

    assert counts[0] == counts[1] < counts[2] < counts[3]
    assert set(track.inputs[: counts[0]]) == {3}
    assert set(track.inputs[counts[1] : counts[2]]) == {1}


def test_plans_that_none_of_them_runs_in_turn_are_timed_with_one_size(
    database: TuningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = on(monkeypatch, Track([(FAST, 100.0), (SLOW, 400.0)], crashes={"a": 1, "c": 1}))

    timings = timer(database, tmp_path, sizes=[{"n": 8}, {"n": 7}, {"n": 9}]).timer.run([FAST, SLOW])

    assert [each.name for each in timings.timed] == ["a", "c"]
    assert timings.failed == {}
    assert (track.inputs[0], set(track.inputs[1:])) == (3, {1})
