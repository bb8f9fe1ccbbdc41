from __future__ import annotations

import dataclasses

import pytest

from collage.report.facts.precision_facts import PrecisionFacts
from collage.report.facts.record import (
    AlternativeFacts,
    Comparison,
    ContenderFacts,
    CopyFacts,
    Record,
    RegionFacts,
    ToolchainFacts,
)
from collage.report.text.explanation import explain
from collage_core.candidates.refusals import Remembered
from tests.engine.report.records import GPU, RECORD, WORK, latency


def with_alternatives(*alternatives: AlternativeFacts) -> Record:
    region = dataclasses.replace(RECORD.regions[2], alternatives=alternatives)
    return dataclasses.replace(RECORD, regions=(region,))


def lines_of(record: Record) -> list[str]:
    return [line.strip() for line in explain(record).splitlines()]


@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_wider_than_asked_unless_one_word_is(width: int) -> None:
    for line in explain(RECORD, width=width).splitlines():
        assert len(line) <= width or len(line.split()) == 1
        assert line == line.rstrip()
        assert "\x1b" not in line


def test_a_cost_has_an_interval_where_it_is_known_how_far_measurements_repeat() -> None:
    region = dataclasses.replace(RECORD.regions[0], cost_ci95_us=(50_100.4, 54_701.2), measured_us=None)

    text = explain(dataclasses.replace(RECORD, regions=(region,)))

    assert "52,340 us predicted [50,100, 54,701] by how far measurements repeat here;" in " ".join(text.split())


def test_every_region_says_where_it_went_what_it_cost_and_what_else_there_was() -> None:
    text = explain(RECORD)

    for region in RECORD.regions:
        assert f"{region.id}  {region.target}:" in text
        for alternative in region.alternatives:
            assert alternative.reason in text
    assert "52,340 us predicted, 57,100 us in place (+9.1 %)" in text
    assert "onnxruntime 110,200 us (+207.8 %): measured slower" in text
    assert "tensorrt has no way: no NVIDIA device" in text


def test_the_decision_comes_first() -> None:
    assert lines_of(RECORD)[2] == RECORD.decision


def test_the_ratio_to_the_best_single_toolchain_is_that_of_the_table() -> None:
    speedup = RECORD.comparison.speedup_vs_best_single

    assert speedup is not None
    assert f"It takes {1 / speedup:.3f} of the time of the best single toolchain" in explain(RECORD)
    assert "speed-up" not in explain(RECORD)


def test_near_ties_are_named() -> None:
    text = explain(RECORD)

    assert "k0002: onnxruntime 110.0 us, openvino 113.0 us" in text
    assert "k0000: onnxruntime" not in text
    assert "Near ties" not in explain(with_alternatives())


@pytest.mark.parametrize(
    ("alternatives", "why"),
    [
        ((), "why onnxruntime: no other target was asked"),
        ((AlternativeFacts(target="b", cost_us=None, reason="no"),), "why onnxruntime: no other target can take it"),
        ((AlternativeFacts(target="b", cost_us=200.0, reason=""),), "why onnxruntime: it is the cheapest here"),
        (
            (AlternativeFacts(target="b", cost_us=None, reason="not all of it", measured=False),),
            "why onnxruntime: not measured here: b",
        ),
        (
            (AlternativeFacts(target="b", cost_us=None, reason="not all of it", measured=False),),
            "b is not known: not all of it",
        ),
    ],
)
def test_the_reason_fits_the_alternatives(alternatives: tuple[AlternativeFacts, ...], why: str) -> None:
    assert why in lines_of(with_alternatives(*alternatives))


CHEAPER = AlternativeFacts(target="openvino", cost_us=50.0, reason="as one kernel")


def timed(**latencies_ms: float | None) -> Comparison:
    """What single toolchains took beside the plan that was kept; None for one that failed."""
    return Comparison(
        contenders=(
            ContenderFacts(name="collage", kind="single", regions=1, latency_ms=latency(96.0)),
            *(
                ContenderFacts(name=name, kind="single", latency_ms=None if p50 is None else latency(p50), failed="x")
                for name, p50 in latencies_ms.items()
            ),
        )
    )


@pytest.mark.parametrize(
    ("comparison", "fared"),
    [
        (timed(onnxruntime=96.0, openvino=99.5), "openvino 99.50 ms"),
        (timed(onnxruntime=96.0, openvino=None), "openvino failed"),
        (timed(onnxruntime=96.0), "openvino was not timed"),
    ],
)
def test_a_plan_of_one_kernel_that_another_target_has_cheaper_by_itself_was_decided_end_to_end(
    comparison: Comparison, fared: str
) -> None:
    record = dataclasses.replace(with_alternatives(CHEAPER), comparison=comparison)

    text = " ".join(explain(record).split())

    said = "measured by itself openvino is cheaper, but times end to end decide: onnxruntime 96.00 ms"
    assert f"why onnxruntime: {said}, {fared} openvino 50.0 us" in text
    assert "the plan as a whole" not in text


def test_one_kernel_that_was_not_timed_end_to_end_claims_no_time() -> None:
    record = dataclasses.replace(with_alternatives(CHEAPER), measured_ms=None)

    assert "is cheaper; the plan was not timed end to end" in " ".join(explain(record).split())


def test_a_plan_that_was_given_is_not_said_to_have_been_chosen() -> None:
    given = dataclasses.replace(RECORD.search, method="given", rounds=0)

    text = explain(dataclasses.replace(with_alternatives(CHEAPER), search=given))

    assert "why onnxruntime: the plan was given; by itself it is not the cheapest here" in text


@pytest.mark.parametrize(
    ("excluded_by", "copies", "why"),
    [
        ((), 0, "the plan was chosen as a whole, by its time end to end"),
        ((), 1, "copies between devices count as well"),
        (("cudnn",), 1, "no cheaper target can share a plan with the others"),
    ],
)
def test_a_region_of_several_says_what_kept_it_from_a_cheaper_target(
    excluded_by: tuple[str, ...], copies: int, why: str
) -> None:
    cheaper = dataclasses.replace(CHEAPER, excluded_by=excluded_by)
    regions = (RECORD.regions[0], dataclasses.replace(RECORD.regions[2], alternatives=(cheaper,)))
    copy = CopyFacts(value="v", source="cpu", destination="cuda:0", size_bytes=4096, cost_us=250.0)

    record = dataclasses.replace(RECORD, regions=regions, device_copies=(copy,) * copies)

    text = " ".join(explain(record).split())

    assert f"why onnxruntime: not the cheapest here alone; {why} openvino 50.0 us" in text


def test_unusable_toolchains_are_one_line_unless_everything_is_wanted() -> None:
    no_gpu = "this machine shows no NVIDIA GPU: it has none, no driver for it, or it is hidden"
    chains = tuple(
        ToolchainFacts(name=name, distribution="d", unusable=reason)
        for name, reason in (("cublas", no_gpu), ("cudnn", no_gpu), ("tvm", "ImportError: no tvm"))
    )
    record = dataclasses.replace(RECORD, toolchains=(*RECORD.toolchains[:2], *chains))

    short, long = (" ".join(explain(record, everything=flag).split()) for flag in (False, True))

    line = "not usable here: cublas, cudnn (this machine shows no NVIDIA GPU), tvm (ImportError: no tvm)"
    assert f"{line}; `collage doctor` says more" in short
    assert "it has none" not in short
    assert "not usable here" not in long
    assert f"cublas is unusable: {no_gpu} cudnn is unusable: {no_gpu} tvm is unusable: ImportError: no tvm" in long


def test_a_toolchain_that_was_not_asked_refuses_nothing() -> None:
    why = "openvino(precision=bf16) it does not compute in the model's own dtypes"
    asked, other, *rest = RECORD.toolchains
    idle = dataclasses.replace(other, claimed_nodes=0, chosen_nodes=0, not_asked=why)

    text = " ".join(explain(dataclasses.replace(RECORD, toolchains=(asked, idle, *rest))).split())

    assert f"{other.name} was not asked: {why}" in text
    assert f"{other.name} took" not in text


def test_a_region_is_compared_with_others_as_they_were_measured() -> None:
    """In place it took longer than the alternative does alone, and so may that."""
    region = dataclasses.replace(
        RECORD.regions[0],
        cost_us=12.0,
        alone_us=10.0,
        alternatives=(AlternativeFacts(target="other", cost_us=11.0, reason=""),),
    )
    text = " ".join(explain(dataclasses.replace(RECORD, regions=(region, *RECORD.regions[1:]))).split())

    assert f"why {region.target} (10.0 us alone): it is the cheapest here other 11.0 us (+10.0 %)" in text


def test_long_lists_of_nodes_are_shortened_unless_everything_is_wanted() -> None:
    assert "backbone/node_5" not in explain(RECORD)
    assert "backbone/node_5" in explain(RECORD, everything=True)


def test_what_was_not_checked_and_what_was_refused_is_said() -> None:
    text = explain(RECORD)

    assert "backbone/node_3: ONNX's evaluator has no com.example::Op" in text
    assert "openvino refused 2 times (query) on head/cast, head/mul" in text


def test_a_failure_of_an_earlier_run_says_since_when_it_is_known() -> None:
    known = Remembered(since="2026-01-02T03:04:05+00:00", plugin="collage-openvino 1.0")
    refusals = tuple(dataclasses.replace(each, remembered=known) for each in RECORD.refusals)

    text = " ".join(explain(dataclasses.replace(RECORD, refusals=refusals)).split())

    assert "error 0.02 is above 0.001; known since 2026-01-02 with collage-openvino 1.0" in text
    assert "by --retry-failed." in text
    assert "--retry-failed" not in explain(RECORD)


def test_a_plan_of_one_kernel_without_profile_is_explained() -> None:
    region = RegionFacts(
        id="k0000", toolchain="a", target="a", composite="", nodes=("n",), operators=("Relu",), cost_us=1.0
    )

    text = explain(dataclasses.replace(RECORD, regions=(region,), refusals=(), unchecked={}, notes=()))

    assert "1.0 us predicted; error at its boundary 0" in text


def test_device_copies_are_listed_dearest_first_and_not_mentioned_where_there_are_none() -> None:
    copies = tuple(
        CopyFacts(value=f"v{n}", source="cpu", destination="cuda:0", size_bytes=1024 * n, cost_us=10.0 * n)
        for n in range(1, 9)
    )
    text = explain(dataclasses.replace(RECORD, device_copies=copies))

    assert "Device copies (8)" in text
    assert "360.0 us of what is predicted" in text
    assert text.index("v8: cpu to cuda:0") < text.index("v7: cpu to cuda:0")
    assert "v2: cpu" not in text
    assert "and 2 more" in text
    assert "Device copies" not in explain(RECORD)


def test_what_devices_do_is_counted_with_the_reasons_of_what_is_launched_one_by_one() -> None:
    text = explain(dataclasses.replace(RECORD, devices=(GPU,), device_work=WORK))

    assert "Each run: 1 graph launch, 3 eager launches, 2 copies, 1 synchronisation\n" in text
    assert text.index("2 kernels launched one by one: it could not be captured: it allocates") < text.index(
        "1 kernel launched one by one: its artifact is not capturable"
    )
    assert "cuda:0: copies from the host 8.2 us and 24.0 GB/s" in text
    assert "all measured; last-level cache 50.0 MiB" in " ".join(text.split())


def test_figures_that_are_assumed_say_so_and_why() -> None:
    assumed = dataclasses.replace(GPU, assumed="it is in use elsewhere")

    text = " ".join(explain(dataclasses.replace(RECORD, devices=(assumed,))).split())

    assert "assumed: not measured, since it is in use elsewhere" in text
    assert "all measured" not in text


def test_without_devices_nothing_is_said_of_them() -> None:
    assert "Devices" not in explain(RECORD)


def test_every_target_that_may_be_off_says_by_how_much_it_is() -> None:
    regions = [
        dataclasses.replace(RECORD.regions[0], target="cublas(precision=fp16)@cuda:0", error=error)
        for error in (2e-4, 7e-4)
    ]
    record = dataclasses.replace(RECORD, max_error_allowed=1e-3, regions=(*regions, RECORD.regions[1]))

    text = " ".join(explain(record).split())

    assert "up to 0.001 was allowed, so inexact targets took part." in text
    assert "Largest error at the boundary of a kernel: cublas(precision=fp16)@cuda:0 7.0e-04," in text


def test_that_bits_had_to_be_the_same_is_said() -> None:
    said = "Only kernels that give the same bits each time took part (--deterministic)."

    assert said in explain(dataclasses.replace(RECORD, deterministic=True))
    assert said not in explain(RECORD)


def test_what_a_region_of_lower_precision_does_to_the_outputs_is_said() -> None:
    facts = PrecisionFacts(products=5, int8=("a", "b"), error=0.012, share=0.36, stopped=("c",), stopped_error=0.034)
    first, *others = RECORD.regions
    regions = (dataclasses.replace(first, precision=facts), *others)

    text = " ".join(explain(dataclasses.replace(RECORD, regions=regions, max_error_allowed=0.02)).split())

    assert "2 of 5 products in 8-bit integers; expected to add 1.2e-02 to the error of the outputs, 36 %" in text
    assert "next would be 'c', with which an error of 3.4e-02 is expected, and up to 0.02 was allowed" in text
    assert "8-bit integers" not in explain(RECORD)


def test_how_ranges_of_integers_were_chosen_is_said() -> None:
    for name, said in (("minmax", "of all numbers"), ("percentile", "hold 99.99 %"), ("entropy", "least information")):
        text = " ".join(explain(dataclasses.replace(RECORD, ranges=name)).split())

        [sentence] = [each for each in text.split(". ") if "Ranges of 8-bit integers" in each]
        assert said in sentence
        assert sentence.endswith(f"in the calibration samples (--ranges {name})")
    assert "Ranges of" not in explain(RECORD)
