"""Predicted against measured times: what is far off is said, with both numbers."""

from __future__ import annotations

import dataclasses

from collage.report.documents.codec import record_from_document, to_jsonable
from collage.report.facts.record import CopyFacts, Record
from collage.report.text.predictions import misprediction_lines, predicted_against_measured
from tests.engine.report.records import RECORD, latency, with_plan


def with_times(*times_us: tuple[float, float]) -> Record:
    """A plan whose regions were predicted to take, and took, so long."""
    region = RECORD.regions[0]
    regions = tuple(
        dataclasses.replace(region, id=f"k{number:04}", cost_us=predicted, measured_us=measured)
        for number, (predicted, measured) in enumerate(times_us)
    )
    return dataclasses.replace(RECORD, regions=regions)


def test_predicted_is_set_against_measured() -> None:
    assert predicted_against_measured(RECORD) == "predicted 88.25 ms, measured 96.00 ms end to end (+8.8 %)"


def test_on_a_machine_that_is_slower_than_usual_the_usual_time_is_what_compares() -> None:
    assert predicted_against_measured(with_plan(192.0, usual_ms=96.0)).endswith(
        "measured 192.0 ms end to end (+8.8 % at the machine's usual speed)"
    )
    assert misprediction_lines(with_plan(192.0, usual_ms=96.0)) == ()


def test_device_copies_are_a_part_of_what_is_predicted() -> None:
    copy = CopyFacts(value="v", source="cpu", destination="cuda:0", size_bytes=4096, cost_us=250.0)
    record = dataclasses.replace(RECORD, device_copies=(copy, copy))

    assert predicted_against_measured(record).startswith("predicted 88.25 ms (device copies 0.5000 ms), measured")


def test_within_ten_per_cent_nothing_is_said() -> None:
    assert misprediction_lines(RECORD) == ()
    assert misprediction_lines(with_plan(88.25 * 1.09, 88.25 * 1.09)) == ()
    assert misprediction_lines(with_plan(88.25 * 0.91, 88.25 * 0.91)) == ()


def test_a_plan_that_takes_a_quarter_longer_is_told_with_both_numbers() -> None:
    [line] = misprediction_lines(with_plan(110.3, 110.3))

    assert line.startswith("the prediction is off by more than 10.0 %: the plan was predicted to take 88.25 ms")
    assert "takes 110.3 ms (+25.0 %)" in line


def test_a_plan_faster_than_predicted_is_told_as_well() -> None:
    [line] = misprediction_lines(with_plan(70.0, 70.0))

    assert "takes 70.00 ms (-20.7 %)" in line


def test_other_contenders_are_told_by_name_and_those_without_a_time_are_not() -> None:
    first, second, third, failed = RECORD.comparison.contenders
    contenders = (
        first,
        dataclasses.replace(second, predicted_ms=100.0, latency_ms=latency(160.0), usual_ms=160.0),
        dataclasses.replace(third, predicted_ms=145.0, usual_ms=146.0),
        dataclasses.replace(failed, predicted_ms=1.0),
    )
    record = dataclasses.replace(RECORD, comparison=dataclasses.replace(RECORD.comparison, contenders=contenders))

    assert misprediction_lines(record) == ("onnxruntime was predicted to take 100.0 ms and takes 160.0 ms (+60.0 %)",)


def test_regions_that_are_off_and_weigh_are_listed_the_farthest_first() -> None:
    record = with_times((1000.0, 1150.0), (500.0, 300.0), (2000.0, 2100.0), (10.0, 20.0), (400.0, 0.0))

    lines = misprediction_lines(record)

    # k0002 is within a tenth, k0003 is too small to matter, k0004 was not profiled
    assert [line.split()[0] for line in lines] == ["k0001", "k0000"]
    assert "predicted to take 500.0 us and takes 300.0 us in place (-40.0 %)" in lines[0]


def test_many_regions_that_are_off_are_counted() -> None:
    lines = misprediction_lines(with_times(*((100.0, 150.0),) * 6))

    assert len(lines) == 5
    assert lines[-1] == "and 2 regions more are off by over 10.0 %"


def test_the_error_of_a_prediction_is_a_fact_that_follows_from_what_the_record_keeps() -> None:
    read = record_from_document(to_jsonable(RECORD))

    assert read.prediction_error == 96.0 / 88.25 - 1
    assert read.regions[0].prediction_error == 57_100.0 / 52_340.0 - 1
    assert read.comparison.contenders[0].prediction_error == 96.0 / 88.25 - 1
    assert read.comparison.contenders[1].prediction_error is None
    assert with_plan(None, None).prediction_error is None
