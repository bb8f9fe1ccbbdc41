from __future__ import annotations

import dataclasses

import pytest

from collage.report.facts.record import AlternativeFacts, CopyFacts, Record, RegionFacts
from collage.report.text.explanation import explain
from tests.engine.report.records import GPU, RECORD, WORK


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
            (AlternativeFacts(target="b", cost_us=50.0, reason="copies"),),
            "why onnxruntime: not the cheapest here alone; the plan as a whole is cheaper with it",
        ),
    ],
)
def test_the_reason_fits_the_alternatives(alternatives: tuple[AlternativeFacts, ...], why: str) -> None:
    assert why in lines_of(with_alternatives(*alternatives))


def test_long_lists_of_nodes_are_shortened_unless_everything_is_wanted() -> None:
    assert "backbone/node_5" not in explain(RECORD)
    assert "backbone/node_5" in explain(RECORD, everything=True)


def test_what_was_not_checked_and_what_was_refused_is_said() -> None:
    text = explain(RECORD)

    assert "backbone/node_3: ONNX's evaluator has no com.example::Op" in text
    assert "openvino refused 2 times (query) on head/cast, head/mul" in text


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
