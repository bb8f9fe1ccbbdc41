from __future__ import annotations

import dataclasses
import io
import json
import math

from rich.console import Console, RenderableType

from collage.report.documents.codec import to_json
from collage.report.documents.outputs import compare_json
from collage.report.facts.bench_facts import ApparentLoss, BenchReport
from collage.report.facts.compare_facts import CompareReport, ValueComparison
from collage.report.facts.doctor_facts import ClashFacts, DoctorReport
from collage.report.facts.inspect_facts import InspectReport, TargetCoverage
from collage.report.facts.run_facts import OutputFacts, RunReport, StepFacts
from collage.report.text.fact_tables import (
    bench_summary,
    compare_summary,
    compare_verdict,
    doctor_summary,
    inspect_summary,
    run_summary,
)
from collage.report.text.store_tables import store_summary
from collage.store import StoreStats
from collage_core.entry_points import PluginFailure
from tests.engine.report.records import COMPARISON, HOST, MODEL, RECORD, WORK

DOCTOR = DoctorReport(
    collage_version="0.1.0",
    host=HOST,
    devices=("cpu",),
    toolchains=RECORD.toolchains,
    failures=(PluginFailure(name="broken", distribution="collage-broken 1.0", reason="ImportError: no libfoo"),),
    tuning_db="sqlite:///tuning.sqlite3",
)
INSPECT = InspectReport(
    model=MODEL,
    kernel_nodes=13,
    operators={"Conv": 4, "Relu": 3, "com.example::Op": 1},
    inputs=("x: float32[1,3,512,512]",),
    outputs=("labels: int64[1,512,512]",),
    targets=(
        TargetCoverage(
            target="openvino",
            toolchain="openvino",
            claimed_nodes=11,
            candidates=40,
            distinct_candidates=18,
            refusals=RECORD.refusals[:2],
        ),
        TargetCoverage(target="tensorrt", toolchain="tensorrt", unusable="no NVIDIA device"),
    ),
    failures=DOCTOR.failures,
)
COMPARE = CompareReport(
    model="m.onnx",
    package="m.collage",
    rtol=1e-3,
    atol=1e-6,
    seed=0,
    values=(
        ValueComparison(name="h1", place="boundary", region="k0000", target="onnxruntime", error=2e-6, passed=True),
        ValueComparison(name="h2", place="boundary", region="k0001", target="openvino", error=0.5, passed=False),
        ValueComparison(name="y", place="output", error=math.inf, passed=False, reason="9 of 10 are NaN"),
    ),
)


def shown(table: RenderableType) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100, markup=False, highlight=False).print(table)
    return stream.getvalue()


def test_doctor_names_toolchains_versions_and_why_one_is_unusable() -> None:
    text = shown(doctor_summary(DOCTOR))

    assert "openvino 2026.4.1" in text
    assert "onnxruntime(spin=true)" in text
    assert "tensorrt is unusable: no NVIDIA device" in text
    assert "broken (collage-broken 1.0) does not load: ImportError: no libfoo" in text
    assert DOCTOR.usable
    assert not dataclasses.replace(DOCTOR, toolchains=RECORD.toolchains[2:]).usable


def test_doctor_says_which_libraries_clash_and_what_to_do() -> None:
    clash = ClashFacts(library="cuDNN", between=("a", "b"), files=("/x", "/y"), reason="a loads /x", remedy="Use one")

    text = shown(doctor_summary(dataclasses.replace(DOCTOR, clashes=(clash,))))

    assert "two of cuDNN: a loads /x. Use one." in text
    assert "two of" not in shown(doctor_summary(DOCTOR))


def test_inspect_shows_what_each_target_takes_and_refuses() -> None:
    text = shown(inspect_summary(INSPECT))

    assert "segmenter.onnx: 14 nodes (as given: 31)" in text
    assert "operators: Conv 4, Relu 3, com.example::Op 1" in text
    assert "84.6 %" in text
    assert "x: float32[1,3,512,512]" in text
    assert "Cast to 'int2' is not there (and 1 like it)" in text
    assert "tensorrt is unusable: no NVIDIA device" in text


def test_bench_shows_what_it_holds_for() -> None:
    report = BenchReport(model=MODEL, host=HOST, threads=1, comparison=COMPARISON, notes=("inputs were random",))

    text = shown(bench_summary(report))

    assert "2 cores, 8.0 GiB; 1 thread per contender" in text
    assert "0.657" in text
    assert "note: inputs were random" in text


def test_compare_names_what_is_beyond_tolerance_and_who_made_it() -> None:
    text = shown(compare_summary(COMPARE))

    assert "BEYOND TOLERANCE: 9 of 10 are NaN" in text
    assert compare_verdict(COMPARE) == (
        "2 of 3 values beyond tolerance (rtol 0.001 of each tensor's scale, atol 1e-06); "
        "the first is 'h2', made by k0001 (openvino)"
    )


def test_compare_passes_only_if_something_was_compared() -> None:
    nothing = dataclasses.replace(COMPARE, values=())
    good = dataclasses.replace(COMPARE, values=COMPARE.values[:1])

    assert not nothing.passed
    assert compare_verdict(nothing) == "nothing was compared"
    assert good.passed
    assert compare_verdict(good).startswith("1 value within tolerance, none beyond (rtol")


def test_boundaries_within_tolerance_are_summed_up() -> None:
    many = tuple(
        ValueComparison(name=f"h{i}", place="boundary", region=f"k{i}", target="a", error=i * 1e-7, passed=True)
        for i in range(30)
    )
    report = dataclasses.replace(COMPARE, values=(*many, COMPARE.values[2]))

    assert "20 more boundaries within tolerance" in shown(compare_summary(report))
    assert "h0 " in shown(compare_summary(report, everything=True))


def test_the_json_of_a_comparison_has_its_verdict() -> None:
    document = json.loads(compare_json(COMPARE))

    assert document["passed"] is False
    assert document["max_error"] == "inf"
    assert document["values"][1]["region"] == "k0001"


def test_run_shows_what_devices_do_and_why_kernels_are_launched_one_by_one() -> None:
    text = shown(run_summary(RunReport(package="m.collage", seed=3, outputs=(), device_work=WORK)))

    assert "devices: 1 graph launch, 3 eager launches, 2 copies, 1 synchronisation" in text
    assert "2 kernels launched one by one: it could not be captured: it allocates" in text


def test_run_shows_outputs_and_the_profile() -> None:
    report = RunReport(
        package="m.collage",
        seed=3,
        outputs=(
            OutputFacts(name="y", dtype="float32", shape=(1, 10), range=(-1.5, 2.0), mean=0.25),
            OutputFacts(name="labels", dtype="list of 2"),
        ),
        steps=(StepFacts(name="k0000", target="openvino", nodes=5, median_us=1500.0),),
    )

    text = shown(run_summary(report))

    assert "random inputs (seed 3)" in text
    assert "1x10" in text
    assert "launch" not in text
    assert "sum of the kernels: 1.500 ms" in text


def test_a_store_is_counted_by_outcome_target_and_version() -> None:
    stats = StoreStats(
        records=3,
        keys=2,
        by_outcome={"measured": 2, "refused": 1},
        by_target={"openvino": 3},
        fingerprints={"openvino 2026.4.1": 3},
        open_attempts=1,
        blobs=1,
        blob_bytes=2048,
        documents=1,
    )

    text = shown(store_summary("sqlite:///x", stats))

    assert "3 records of 2 candidates; 1 document; 1 cached file (2.0 KiB)" in text
    assert "begun and never finished: 1 candidate" in text
    assert "openvino 2026.4.1" in text


def test_every_report_is_json() -> None:
    for report in (DOCTOR, INSPECT, COMPARE):
        assert json.loads(to_json(report))["schema_version"] == 2


def test_bench_says_what_is_lost_against_a_users_plan() -> None:
    loss = ApparentLoss(contender="collage", plan="mine", loss=-0.01, loss_ci95=(-0.02, 0.004))
    report = BenchReport(model=MODEL, host=HOST, threads=1, comparison=COMPARISON, apparent_losses=(loss,))

    text = shown(bench_summary(report))

    assert "apparent loss of collage against mine: -1.0 % (95 % interval -2.0 to +0.4 %)" in text
