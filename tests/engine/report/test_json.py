"""The public JSON, against the keys that docs/design promises."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from collage.report.documents.bench_json import ApparentLoss, BenchReport, bench_json
from collage.report.documents.optimize_json import optimize_json
from collage.report.facts.precision_facts import MetricFacts
from collage.report.facts.record import AsCalledFacts, Comparison, ContenderFacts, CopyFacts
from tests.engine.report.records import COMPARISON, ESTIMATED, GPU, HOST, MODEL, RECORD, WORK, with_plan

BENCH_KEYS = [
    "schema_version",
    "model",
    "host",
    "threads",
    "contenders",
    "best_single",
    "speedup_vs_best_single",
    "speedup_ci95",
]
OPTIMIZE_KEYS = [
    "search",
    "predicted_ms",
    "measured_ms",
    "prediction",
    "headroom",
    "max_error",
    "metric",
    "nan",
    "deterministic",
    "ranges",
    "regions",
    "device_copies",
    "devices",
    "device_work",
    "refusals",
]


def bench_document(comparison: Comparison) -> Any:
    return json.loads(bench_json(BenchReport(model=MODEL, host=HOST, threads=2, comparison=comparison)))


def test_a_comparison_has_the_promised_keys() -> None:
    document = bench_document(COMPARISON)
    mixed, single, _, failed = document["contenders"]

    assert list(document) == BENCH_KEYS
    assert list(document["model"]) == ["name", "sha256", "nodes"]
    assert list(mixed) == ["name", "kind", "toolchains", "regions", "latency_ms"]
    assert list(mixed["latency_ms"]) == ["p50", "p90", "p99", "mean", "min", "n", "ci95"]
    assert list(single) == ["name", "kind", "latency_ms"]
    assert list(failed) == ["name", "kind", "failed"]
    assert document["best_single"] == "openvino"
    assert document["speedup_ci95"] == [1.506, 1.536]


def test_runs_as_users_call_them_have_their_own_figures() -> None:
    mixed = COMPARISON.contenders[0]
    assert mixed.latency_ms is not None
    called = AsCalledFacts(latency_ms=mixed.latency_ms, ratio=1.25, ratio_ci95=(1.2, 1.3))

    document = bench_document(Comparison(contenders=(dataclasses.replace(mixed, as_called=called),)))

    [contender] = document["contenders"]
    assert contender["as_called"]["latency_ms"] == contender["latency_ms"]
    assert (contender["as_called"]["ratio"], contender["as_called"]["ratio_ci95"]) == (1.25, [1.2, 1.3])


def test_runs_as_users_call_them_have_no_ratio_where_there_is_no_single_toolchain() -> None:
    mixed = COMPARISON.contenders[0]
    assert mixed.latency_ms is not None
    called = AsCalledFacts(latency_ms=mixed.latency_ms)

    [contender] = bench_document(Comparison(contenders=(dataclasses.replace(mixed, as_called=called),)))["contenders"]

    assert (contender["as_called"]["ratio"], contender["as_called"]["ratio_ci95"]) == (None, None)


def test_a_contender_of_lower_precision_is_marked() -> None:
    mixed, *others = COMPARISON.contenders

    document = bench_document(Comparison(contenders=(dataclasses.replace(mixed, exact=False), *others)))

    assert [each.get("exact") for each in document["contenders"]] == [False, *[None] * len(others)]


def test_a_metric_has_its_drop() -> None:
    metric = MetricFacts(name="f1", max_drop=0.5, of_model=91.0, of_plan=90.75, samples=7, held_out=True)

    found = json.loads(optimize_json(dataclasses.replace(RECORD, metric=metric)))["metric"]

    assert found == {
        "name": "f1",
        "max_drop": 0.5,
        "of_model": 91.0,
        "of_plan": 90.75,
        "samples": 7,
        "held_out": True,
        "drop": 0.25,
    }


def test_what_is_not_known_is_null() -> None:
    nobody = Comparison(contenders=(ContenderFacts(name="a", kind="single", failed="it crashed"),))

    document = bench_document(nobody)

    assert document["best_single"] is None
    assert document["speedup_vs_best_single"] is None
    assert document["speedup_ci95"] is None


def test_a_single_toolchain_that_needs_help_says_of_whom() -> None:
    helped = ContenderFacts(name="openvino", kind="single", toolchains=("reference", "openvino"), regions=3, failed="x")

    [contender] = bench_document(Comparison(contenders=(helped,)))["contenders"]

    assert contender["toolchains"] == ["openvino", "reference"]
    assert contender["regions"] == 3


def test_an_optimisation_has_the_promised_keys() -> None:
    document = json.loads(optimize_json(RECORD))

    assert list(document) == BENCH_KEYS + OPTIMIZE_KEYS
    assert list(document["search"]) == [
        "method",
        "exact",
        "gap_us",
        "bound_us",
        "candidates",
        "distinct_candidates",
        "unmeasured",
        "measured",
        "cache_hits",
        "seconds",
        "compatible_sets",
    ]
    assert list(document["search"]["seconds"]) == ["prepare", "candidates", "measure", "search", "refine", "total"]
    assert [list(region) for region in document["regions"]] == [
        ["id", "toolchain", "target", "composite", "nodes", "cost_us", "cost_ci95_us", "precision"]
    ] * 3
    assert document["regions"][1] == {
        "id": "k0001",
        "toolchain": "openvino",
        "target": "openvino",
        "composite": "argmax",
        "nodes": ["head/argmax"],
        "cost_us": 35800.0,
        "cost_ci95_us": None,
        "precision": None,
    }


def test_devices_are_listed_with_what_they_take_and_what_a_run_has_them_do() -> None:
    document = json.loads(optimize_json(dataclasses.replace(RECORD, devices=(GPU,), device_work=WORK)))

    [device] = document["devices"]
    assert list(device) == [
        "name",
        "to_device",
        "from_device",
        "within",
        "wait_us",
        "start_us",
        "cache_bytes",
        "assumed",
    ]
    assert device["to_device"] == {"latency_us": 8.25, "gb_per_s": 24.0}
    work = document["device_work"]
    assert list(work) == ["graph_launches", "eager_launches", "copies", "synchronisations", "launches"]
    assert [launch["reason"] for launch in work["launches"] if launch["mode"] == "graph"] == [""]


def test_headroom_has_the_estimate_with_what_it_is_made_of_and_calls_nothing_exact() -> None:
    document = json.loads(optimize_json(ESTIMATED))["headroom"]

    assert list(document) == ["candidates", "share_of_peak", "machine", "limit", "regions"]
    assert (document["candidates"], document["share_of_peak"]) == (None, 0.81)
    assert list(document["machine"]) == ["threads", "peaks", "bandwidths", "missing"]
    assert document["limit"]["least_us"] == 77760.0
    assert [(each["id"], each["share_of_peak"]) for each in document["regions"]] == [
        ("k0000", 0.8),
        ("k0001", 1.5),
        ("k0002", round(1.5 / 112.25, 6)),
    ]
    assert list(document["regions"][0]) == [
        "id",
        "gflop",
        "size_bytes",
        "level",
        "least_us",
        "bound_by",
        "uncounted",
        "not_estimated",
        "share_of_peak",
    ]
    assert "exact" not in json.dumps(document)


def test_without_an_estimate_its_figures_are_null() -> None:
    assert json.loads(optimize_json(RECORD))["headroom"] == {
        "candidates": None,
        "share_of_peak": None,
        "machine": None,
        "limit": None,
        "regions": [],
    }


def test_predictions_stand_beside_what_was_measured() -> None:
    first, *others = RECORD.regions
    unprofiled = dataclasses.replace(RECORD, regions=(first, dataclasses.replace(others[0], measured_us=0.0)))

    document = json.loads(optimize_json(unprofiled))["prediction"]
    plans = document.pop("plans")

    assert len(plans) == len(RECORD.comparison.contenders)
    assert plans[0] == {"name": "collage", "kernels": 3, "alone_ms": 85.0, "predicted_ms": 88.25, "usual_ms": 96.0}
    assert document == {
        "error": round(96.0 / 88.25 - 1, 6),
        "regions": [
            {"id": "k0000", "predicted_us": 52340.0, "measured_us": 57100.0},
            {"id": "k0001", "predicted_us": 35800.0, "measured_us": None},
        ],
    }
    untimed = with_plan(0.0, 0.0)
    assert json.loads(optimize_json(untimed))["prediction"]["error"] is None


def test_regions_are_the_same_bytes_for_runs_that_chose_alike() -> None:
    later = tuple(
        dataclasses.replace(region, measured_us=region.measured_us * 1.1, error=1e-5) for region in RECORD.regions
    )
    again = dataclasses.replace(RECORD, created="2027-01-01T00:00:00+00:00", regions=later, measured_ms=99.0)

    assert json.loads(optimize_json(again))["regions"] == json.loads(optimize_json(RECORD))["regions"]


def test_a_toolchain_without_a_target_is_among_the_refusals() -> None:
    said = [each for each in json.loads(optimize_json(RECORD))["refusals"] if each["stage"] == "toolchain"]

    [refusal] = said
    assert refusal == {
        "target": "tensorrt",
        "stage": "toolchain",
        "nodes": [],
        "reason": "no NVIDIA device",
        "remembered": None,
    }


def test_refusals_come_in_one_order() -> None:
    turned = dataclasses.replace(RECORD, refusals=tuple(reversed(RECORD.refusals)))

    assert optimize_json(turned) == optimize_json(RECORD)


def test_what_is_lost_against_a_users_plan_is_in_the_document_only_if_one_was_given() -> None:
    loss = ApparentLoss(contender="collage", plan="mine", loss=0.0312345678, loss_ci95=(0.019, 0.044))
    report = BenchReport(model=MODEL, host=HOST, threads=2, comparison=COMPARISON, apparent_losses=(loss,))

    assert json.loads(bench_json(report))["apparent_losses"] == [
        {"contender": "collage", "plan": "mine", "loss": 0.031235, "loss_ci95": [0.019, 0.044]}
    ]
    assert "apparent_losses" not in bench_document(COMPARISON)


def test_device_copies_are_listed() -> None:
    copy = CopyFacts(value="v", source="cpu", destination="cuda:0", size_bytes=4096, cost_us=250.12345)

    document = json.loads(optimize_json(dataclasses.replace(RECORD, device_copies=(copy,))))

    assert document["device_copies"] == [
        {"value": "v", "source": "cpu", "destination": "cuda:0", "size_bytes": 4096, "cost_us": 250.123}
    ]
