"""What `--json` writes, against what the design promises of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from collage.errors import RecordError
from collage.report.documents.codec import to_json, to_jsonable
from collage.report.documents.outputs import plans_json, records_of
from collage.report.facts.bench_facts import ApparentLoss, BenchReport
from collage.report.facts.precision_facts import MetricFacts
from collage.report.facts.record import Comparison, ContenderFacts, Record
from tests.engine.report.records import COMPARISON, ESTIMATED, GPU, HOST, MODEL, RECORD, WORK


def document_of(record: Record) -> Any:
    return json.loads(plans_json([record]))


@pytest.mark.parametrize(
    "record",
    [RECORD, ESTIMATED, dataclasses.replace(RECORD, devices=(GPU,), device_work=WORK)],
    ids=["plain", "estimated", "on a device"],
)
def test_what_is_written_of_a_plan_is_read_back(record: Record) -> None:
    ordered = dataclasses.replace(
        record, refusals=tuple(sorted(record.refusals, key=lambda r: (r.target, r.stage, r.reason)))
    )

    [back] = records_of(document_of(ordered), "it")

    assert back == ordered


def test_plans_for_several_shapes_are_listed_and_read_back() -> None:
    other = dataclasses.replace(RECORD, model=dataclasses.replace(MODEL, input_shapes={"x": (4, 3)}))

    document = json.loads(plans_json([ESTIMATED, other]))

    assert [each["model"]["input_shapes"] for each in document["shapes"]] == [{}, {"x": [4, 3]}]
    assert len(records_of(document, "it")) == 2


@pytest.mark.parametrize("document", [{"shapes": []}, {"schema_version": 1}, [], "text", {"shapes": ["text"]}])
def test_what_is_no_plan_is_refused(document: Any) -> None:
    with pytest.raises(RecordError):
        records_of(document, "it")


def test_contenders_have_the_same_form_in_bench_and_optimize() -> None:
    report = BenchReport(model=MODEL, host=HOST, threads=2, comparison=COMPARISON)

    assert json.loads(to_json(report))["comparison"] == document_of(RECORD)["comparison"]


def test_what_is_not_known_is_null() -> None:
    nobody = Comparison(contenders=(ContenderFacts(name="a", kind="single", failed="it crashed"),))

    document = to_jsonable(nobody)

    assert {key for key, value in document.items() if value is None} == {
        "best_single",
        "speedup_vs_best_single",
        "speedup_ci95",
        "best_single_as_called",
    }
    assert {key for key, value in document["contenders"][0].items() if value is None} == {
        "latency_ms",
        "ratio",
        "ratio_ci95",
        "predicted_ms",
        "alone_ms",
        "usual_ms",
        "as_called",
        "per_s",
    }


def test_everything_that_is_printed_of_a_plan_is_in_its_document() -> None:
    document = document_of(RECORD)

    assert document["decision"] == RECORD.decision
    assert [each["ratio"] for each in document["comparison"]["contenders"]] == [0.6575, 1.096, 1.0, None]
    assert [each["measured_us"] for each in document["regions"]] == [57100.0, 38350.5, 112.25]
    assert [other["target"] for other in document["regions"][0]["alternatives"]] == ["openvino", "tensorrt"]
    assert [each["unusable"] for each in document["toolchains"]] == ["", "", "no NVIDIA device"]


def test_figures_that_follow_from_others_are_beside_them() -> None:
    metric = MetricFacts(name="f1", max_drop=0.5, of_model=91.0, of_plan=90.75, samples=7, held_out=True)

    derived = document_of(dataclasses.replace(ESTIMATED, metric=metric))["derived"]

    assert (derived["share_of_peak"], derived["metric_drop"]) == (pytest.approx(0.81), 0.25)
    assert derived["prediction_error"] == pytest.approx(96.0 / 88.25 - 1)
    assert [each["share_of_peak"] for each in derived["regions"]] == pytest.approx([0.8, 1.5, 1.5 / 112.25])
    assert sum(each["share_of_time"] for each in derived["regions"]) == pytest.approx(1)
    assert derived["regions"][0]["prediction_error"] == pytest.approx(57100.0 / 52340.0 - 1)


def test_what_does_not_follow_is_null() -> None:
    derived = document_of(RECORD)["derived"]

    assert (derived["headroom"], derived["share_of_peak"], derived["metric_drop"]) == (None, None, None)


def test_refusals_come_in_one_order() -> None:
    turned = dataclasses.replace(RECORD, refusals=tuple(reversed(RECORD.refusals)))

    assert plans_json([turned]) == plans_json([RECORD])


def test_what_is_lost_against_a_users_plan_is_in_the_document() -> None:
    loss = ApparentLoss(contender="collage", plan="mine", loss=0.03125, loss_ci95=(0.019, 0.044))
    report = BenchReport(model=MODEL, host=HOST, threads=2, comparison=COMPARISON, apparent_losses=(loss,))

    assert json.loads(to_json(report))["apparent_losses"] == [
        {"contender": "collage", "plan": "mine", "loss": 0.03125, "loss_ci95": [0.019, 0.044]}
    ]
