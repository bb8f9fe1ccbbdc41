"""The page of `benchmarks/gpu.py` on races whose numbers are written down here."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.gpu_page import HEADINGS, faults, markdown, means, round_ratios, rows, speed_up
from benchmarks.judge.statistics import geometric_mean


def race(
    name: str, precision: str = "fp32", error: float = 1e-6, *, rounds_us: dict[str, list[float]]
) -> dict[str, Any]:
    """A race in which contenders took these times; `triton` is the best single toolchain if it ran."""
    contenders = []
    for contender, times in rounds_us.items():
        middle = sorted(times)[len(times) // 2] / 1e3
        contenders.append(
            {
                "name": contender,
                "kind": "single" if contender == "triton" else "outside",
                "latency_ms": {"p50": middle, "ci95": [middle, middle]},
                "max_error": error,
                "comparable": True,
                "note": "one CUDA graph",
            }
        )
        if contender == "collage" and "triton" in rounds_us:
            own = [a / b for a, b in zip(times, rounds_us["triton"], strict=True)]
            contenders[-1]["ratio_vs_best_single"] = {"ratio": own[0], "ci95": [min(own), max(own)]}
    return {
        "key": f"{name}-b1-{precision}",
        "name": name,
        "batch": 1,
        "precision": precision,
        "device": "GPU X",
        "date": "2026-11-21T12:00:00+00:00",
        "versions": {"torch": "2.11.0"},
        "host": {"cpu": "CPU Y", "cores": 16, "system": "Linux"},
        "protocol": {"rounds": 3, "seconds": 0.05, "warmup_s": 0.05},
        "contenders": contenders,
        "rounds_us": rounds_us,
        "best_single": "triton" if "triton" in rounds_us else None,
    }


VIT = race(
    "vit",
    rounds_us={
        "collage": [100.0, 200.0, 100.0],
        "max-autotune": [200.0, 400.0, 190.0],
        "torch-eager": [400.0, 800.0, 400.0],
        "triton": [110.0, 220.0, 110.0],
    },
)
BERT = race("bert", rounds_us={"collage": [100.0] * 3, "max-autotune": [50.0] * 3, "torch-eager": [100.0] * 3})


def test_a_speed_up_is_paired_by_round() -> None:
    assert round_ratios(VIT, "max-autotune") == [2.0, 2.0, 1.9]
    found = speed_up(VIT, "max-autotune")
    assert found is not None
    assert (found.value, found.high) == (2.0, 2.0)
    assert speed_up(VIT, "tensorrt") is None


def test_a_row_shows_each_race_against_both_compilers_and_the_best_single_toolchain() -> None:
    first, second = (
        dict(zip([f"{i} {heading}" for i, heading in enumerate(HEADINGS)], row, strict=True))
        for row in rows([VIT, BERT])
    )

    assert list(first.values())[:7] == ["vit", "1", "fp32", "0.100", "1.0e-06", "0.200", "2.00"]
    assert list(first.values())[8:10] == ["0.400", "4.00"]
    assert list(first.values())[11:] == ["triton", "0.110", "1.10", "1.10 - 1.10"]
    assert list(second.values())[11:] == ["none", "", "", ""]


def test_the_mean_over_races_is_geometric_and_says_over_how_many() -> None:
    found = {(row[0], row[1]): row[2:] for row in means([VIT, BERT, race("vit", "fp16", rounds_us={"collage": [1.0]})])}

    assert found["fp32", "max-autotune"][:2] == ("2 of 2", "1.00")  # of 2 and 1 / 2
    assert found["fp32", "torch-eager"][:2] == ("2 of 2", "2.00")  # of 4 and 1
    assert found["fp32", "best single toolchain"][:2] == ("1 of 2", "1.10")
    assert not [key for key in found if key[0] == "fp16"]


def test_the_interval_of_a_geometric_mean_is_that_of_its_logarithms() -> None:
    certain, loose = geometric_mean([[2.0] * 9, [8.0] * 9]), geometric_mean([[1.0, 4.0] * 20, [2.0] * 9])

    assert (certain.value, certain.low, certain.high) == pytest.approx((4.0, 4.0, 4.0))
    assert loose.low == pytest.approx(math.sqrt(2.0))
    assert loose.high == pytest.approx(math.sqrt(8.0))


def test_a_plan_that_is_slower_wrong_or_missing_is_named() -> None:
    times = {"collage": [110.0] * 3, "torch-eager": [100.0] * 3, "triton": [100.0] * 3}
    wrong = race("vit", error=0.5, rounds_us={"collage": [1.0]})
    wrong["contenders"].append({**wrong["contenders"][0], "name": "torch-eager", "max_error": 1e-3})
    lost = race("vit", rounds_us={"collage": [1.0]})
    lost["contenders"][0]["comparable"] = False
    missing = race("vit", rounds_us={"torch-eager": [1.0]})
    missing["contenders"].append({"name": "collage", "kind": "outside", "failed": "no toolchain"})

    assert faults(VIT) == []
    assert faults(race("vit", rounds_us=times)) == ["it may be slower than triton: up to 1.10 of its time"]
    assert faults(wrong) == ["its error is 5.0e-01, PyTorch's in the same precision 1.0e-03"]
    assert faults(lost) == ["its outputs differ in shape or are not finite"]
    wrong["contenders"][1] |= {"comparable": False, "max_error": None}
    assert faults(wrong) == []
    assert faults(missing) == ["no plan ran"]
    assert faults(race("vit", rounds_us={"torch-eager": [1.0]})) == []


def test_the_page_says_on_what_how_and_what_did_not_run() -> None:
    stopped = race("gpt2", rounds_us={"collage": [1.0]})
    stopped["contenders"].append({"name": "tensorrt", "kind": "single", "failed": "no TensorRT is installed"})
    page = markdown([VIT, stopped])

    assert "CPU Y, 16 cores, Linux; GPU X; 2026-11-21." in page
    assert "torch 2.11.0." in page
    assert "- tensorrt: no TensorRT is installed (gpt2, batch 1, fp32)" in page
    assert "- collage: one CUDA graph (2 of 2 races)" in page
    assert "| fp32 | max-autotune | 1 of 2 | 2.00 |" in page
