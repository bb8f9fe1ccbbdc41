"""The figures of the README are those of the committed results that it links to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite_page import gains

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\w+) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) - ([\d.]+) \| ([\d.]+|the same) \|$", re.MULTILINE)

NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "halide": "Halide"}


def models_of(results: str) -> list[dict[str, Any]]:
    """Return the models in a file of results."""
    assert f"({results}.md)" in README, "the README links to where its figures are"
    models: list[dict[str, Any]] = json.loads((ROOT / f"{results}.json").read_text(encoding="utf-8"))["models"]
    return models


def judged(results: str, model: str) -> dict[str, Any]:
    """Return the contenders of a model in a file of results, by name."""
    [found] = [each for each in models_of(results) if each["name"] == model]
    return {each["name"]: each for each in found["judged"][-1]}


def said(contender: dict[str, Any]) -> tuple[str, ...]:
    ratio = contender["ratio_vs_best_single"]
    return tuple(f"{figure:.3f}" for figure in (ratio["ratio"], *ratio["ci95"]))


def test_the_table_has_six_models() -> None:
    assert len(ROW.findall(README)) == 6


@pytest.mark.parametrize(("model", "plan", "ratio", "low", "high", "without"), ROW.findall(README))
def test_a_row_is_what_the_suite_found(model: str, plan: str, ratio: str, low: str, high: str, without: str) -> None:
    found = judged("benchmarks/results/suite-epyc-2-cores", model)

    assert said(found["collage"]) == (ratio, low, high)
    assert (said(found["without-halide"])[0] if "without-halide" in found else "the same") == without


@pytest.mark.parametrize(("model", "plan"), [row[:2] for row in ROW.findall(README)])
def test_a_row_names_the_plan_that_was_kept(model: str, plan: str) -> None:
    [found] = [each for each in models_of("benchmarks/results/suite-epyc-2-cores") if each["name"] == model]

    assert {target for target, name in NAMES.items() if name in plan} == set(found["targets"])
    kernels = len(found["plan"])
    assert plan.endswith(f", {kernels} kernels" if kernels > 1 else " alone")


def test_the_mixes_are_all_in_the_table() -> None:
    mixes = {each["name"] for each in models_of("benchmarks/results/suite-epyc-2-cores") if len(each["targets"]) > 1}

    assert mixes == {model for model, plan, *_ in ROW.findall(README) if not plan.endswith(" alone")}


def test_without_avx_512_as_many_models_get_a_mix_as_is_said() -> None:
    models = models_of("benchmarks/results/suite-epyc-avx2-2-cores")
    said = re.search(r"with AVX2 alone (\d+) models get a mix", README)

    assert said is not None
    assert int(said[1]) == sum(len(each["targets"]) > 1 for each in models)


def test_what_is_said_of_generated_models_is_what_the_suite_found() -> None:
    models = models_of("benchmarks/results/suite-generated-epyc-avx2-2-cores")

    mixes = sum(len(each["targets"]) > 1 for each in models)
    faster = re.search(r"plans are ([\d.]+) times as fast", gains(models))
    assert faster is not None
    assert f"{mixes} get a mix, and over all {len(models)} plans are {faster[1]} times as fast" in README


def test_the_figure_under_a_bound_is_what_the_suite_found() -> None:
    found = judged("benchmarks/results/suite-lower-precision-epyc-2-cores", "resnet50")

    ratio, low, high = said(found["collage"])
    assert f"ResNet-50, with seeded weights, takes {ratio} of the best" in README
    assert f"{low} - {high}\n" in README
