"""A record made by hand: a segmenter cut in three, and one toolchain that is not installed."""

from __future__ import annotations

import dataclasses

from collage.report.facts.device_facts import DeviceFacts, DeviceWorkFacts, LaunchFacts, speed
from collage.report.facts.machine_facts import BandwidthFacts, LimitFacts, MachineFacts, PeakFacts
from collage.report.facts.record import (
    AlternativeFacts,
    Comparison,
    ContenderFacts,
    HostFacts,
    LatencyFacts,
    ModelFacts,
    Record,
    RegionFacts,
    ToolchainFacts,
)
from collage.report.facts.search_facts import SearchFacts
from collage_core.candidates.refusals import Refusal

HOST = HostFacts(
    system="Linux x86_64", cpu="Example CPU @ 2.5GHz", physical_cores=2, memory_bytes=8 * 1024**3, python="3.11.7"
)
MODEL = ModelFacts(name="segmenter.onnx", sha256="ab" * 32, nodes=14, nodes_as_given=31)


def latency(p50: float) -> LatencyFacts:
    return LatencyFacts(
        p50=p50, p90=p50 * 1.1, p99=p50 * 1.2, mean=p50 * 1.02, min=p50 * 0.97, n=200, ci95=(p50 * 0.99, p50 * 1.01)
    )


COMPARISON = Comparison(
    contenders=(
        ContenderFacts(
            name="collage",
            kind="mixed",
            toolchains=("openvino", "onnxruntime"),
            regions=3,
            latency_ms=latency(96.0),
            ratio=0.6575,
            ratio_ci95=(0.651, 0.664),
            predicted_ms=88.25,
            alone_ms=85.0,
            usual_ms=96.0,
        ),
        ContenderFacts(
            name="onnxruntime",
            kind="single",
            toolchains=("onnxruntime",),
            regions=1,
            latency_ms=latency(160.0),
            ratio=1.096,
            ratio_ci95=(1.08, 1.11),
        ),
        ContenderFacts(
            name="openvino",
            kind="single",
            toolchains=("openvino",),
            regions=1,
            latency_ms=latency(146.0),
            ratio=1.0,
            ratio_ci95=(1.0, 1.0),
        ),
        ContenderFacts(
            name="openvino(precision=bf16)",
            kind="single",
            toolchains=("openvino",),
            failed="output 'labels' is off by 4.1 % of its scale; 0.1 % is allowed",
        ),
    ),
    best_single="openvino",
    speedup_vs_best_single=1.5208,
    speedup_ci95=(1.506, 1.536),
)

REGIONS = (
    RegionFacts(
        id="k0000",
        toolchain="onnxruntime",
        target="onnxruntime",
        composite="",
        nodes=tuple(f"backbone/node_{i}" for i in range(9)),
        operators=("Conv", "Relu", "Conv", "Relu", "Conv", "Relu", "Concat", "Conv", "Resize"),
        cost_us=52_340.0,
        measured_us=57_100.0,
        error=3.2e-06,
        alternatives=(
            AlternativeFacts(target="openvino", cost_us=58_900.0, reason="its Resize takes longer"),
            AlternativeFacts(target="tensorrt", cost_us=None, reason="no NVIDIA device"),
        ),
    ),
    RegionFacts(
        id="k0001",
        toolchain="openvino",
        target="openvino",
        composite="argmax",
        nodes=("head/argmax",),
        operators=("ArgMax",),
        cost_us=35_800.0,
        measured_us=38_350.5,
        alternatives=(AlternativeFacts(target="onnxruntime", cost_us=110_200.0, reason="measured slower"),),
    ),
    RegionFacts(
        id="k0002",
        toolchain="onnxruntime",
        target="onnxruntime",
        composite="",
        nodes=("head/cast", "head/mul", "head/add"),
        operators=("Cast", "Mul", "Add"),
        cost_us=110.0,
        measured_us=112.25,
        alternatives=(AlternativeFacts(target="openvino", cost_us=113.0, reason="measured slower"),),
    ),
)

RECORD = Record(
    collage_version="0.1.0",
    created="2026-01-02T03:04:05+00:00",
    model=MODEL,
    host=HOST,
    threads=2,
    seed=0,
    preset="default",
    max_error_allowed=0.0,
    toolchains=(
        ToolchainFacts(
            name="onnxruntime",
            distribution="collage-onnxruntime 0.1.0",
            targets=("onnxruntime", "onnxruntime(spin=true)"),
            fingerprint="onnxruntime 1.31.1",
            claimed_nodes=13,
            chosen_nodes=12,
        ),
        ToolchainFacts(
            name="openvino",
            distribution="collage-openvino 0.1.0",
            targets=("openvino", "openvino(precision=bf16)"),
            fingerprint="openvino 2026.4.1",
            claimed_nodes=11,
            chosen_nodes=1,
        ),
        ToolchainFacts(name="tensorrt", distribution="collage-tensorrt 0.1.0", unusable="no NVIDIA device"),
    ),
    search=SearchFacts(
        method="exact",
        exact=True,
        gap_us=0.0,
        candidates=74,
        distinct_candidates=31,
        measured=20,
        cache_hits=11,
        left_out="4 fused groups per target, those with least work",
        rounds=2,
        seconds={"total": 75.5, "prepare": 0.6, "candidates": 0.2, "measure": 51.25, "search": 0.1, "refine": 23.35},
    ),
    comparison=COMPARISON,
    decision="Mixed plan: 96.0 ms against 146.0 ms of openvino alone; the interval of the ratio lies below 1.",
    predicted_ms=88.25,
    measured_ms=96.0,
    max_error=4.5e-06,
    regions=REGIONS,
    refusals=(
        Refusal(target="openvino", stage="query", nodes=("head/cast",), reason="Cast to 'uint2' is not there"),
        Refusal(target="openvino", stage="query", nodes=("head/mul",), reason="Cast to 'int2' is not there"),
        Refusal(target="openvino", stage="check", nodes=("head/add",), reason="error 0.02 is above 0.001"),
        Refusal(target="onnxruntime", stage="lower", nodes=("backbone/node_8",), reason="Resize 'cubic' [NHWC]"),
    ),
    unchecked={"backbone/node_3": "ONNX's evaluator has no com.example::Op"},
    notes=("inputs were random (seed 0)",),
)


def with_plan(measured_ms: float | None, usual_ms: float | None) -> Record:
    """The same, with a plan that takes so long, and so long at the machine's usual speed."""
    first, *others = COMPARISON.contenders
    plan = dataclasses.replace(
        first, latency_ms=None if measured_ms is None else latency(measured_ms), usual_ms=usual_ms
    )
    comparison = dataclasses.replace(COMPARISON, contenders=(plan, *others))
    return dataclasses.replace(RECORD, measured_ms=measured_ms, comparison=comparison)


WORK = DeviceWorkFacts(
    graph_launches=1,
    eager_launches=3,
    copies=2,
    synchronisations=1,
    launches=(
        LaunchFacts(device="cuda:0", mode="graph", kernels=7),
        LaunchFacts(device="cuda:0", mode="eager", kernels=1, reason="its artifact is not capturable"),
        LaunchFacts(device="cuda:0", mode="eager", kernels=2, reason="it could not be captured: it allocates"),
    ),
)
GPU = DeviceFacts(
    name="cuda:0",
    to_device=speed(8.25, 24_000.0),
    from_device=speed(7.5, 22_000.0),
    within=speed(2.0, 1_500_000.0),
    wait_us=6.0,
    start_us=3.5,
    cache_bytes=50 << 20,
)
"""A device, and what a plan has it do."""

MACHINE = MachineFacts(
    threads=2,
    peaks=(PeakFacts(arithmetic="float32", gflop_per_s=150.0, by="openvino"),),
    bandwidths=(
        BandwidthFacts(level="L2", holds_bytes=2 << 20, gb_per_s=200.0),
        BandwidthFacts(level="memory", holds_bytes=0, gb_per_s=10.0),
    ),
)


def limit(least_us: float, *, bound_by: str = "arithmetic", uncounted: tuple[str, ...] = ()) -> LimitFacts:
    """A kernel's limit on that machine."""
    return LimitFacts(
        gflop={"float32": 150e9 * least_us / 1e15},
        size_bytes=3 << 20,
        level="memory",
        least_us=least_us,
        bound_by=bound_by,
        uncounted=uncounted,
    )


ESTIMATED = dataclasses.replace(
    RECORD,
    machine=MACHINE,
    limit=limit(77_760.0),
    regions=tuple(
        dataclasses.replace(region, limit=each)
        for region, each in zip(
            REGIONS,
            (limit(45_680.0), limit(57_525.75), limit(1.5, bound_by="memory", uncounted=("Cast",))),
            strict=True,
        )
    ),
)
"""The same with an estimate of what the machine allows: the second kernel is faster than that."""
