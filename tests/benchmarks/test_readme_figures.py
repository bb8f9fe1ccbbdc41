"""The figures of the README are those of the committed results that it links to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\w+) \| [^|]+ \| ([\d.]+) \| ([\d.]+) - ([\d.]+) \| ([\d.]+|the same) \|$", re.MULTILINE)


def judged(results: str, model: str) -> dict[str, Any]:
    """Return the contenders of a model in a file of results, by name."""
    assert f"({results}.md)" in README, "the README links to where its figures are"
    report = json.loads((ROOT / f"{results}.json").read_text(encoding="utf-8"))
    [found] = [each for each in report["models"] if each["name"] == model]
    return {each["name"]: each for each in found["judged"][-1]}


def said(contender: dict[str, Any]) -> tuple[str, ...]:
    ratio = contender["ratio_vs_best_single"]
    return tuple(f"{figure:.3f}" for figure in (ratio["ratio"], *ratio["ci95"]))


def test_the_table_has_four_models() -> None:
    assert len(ROW.findall(README)) == 4


@pytest.mark.parametrize(("model", "ratio", "low", "high", "without"), ROW.findall(README))
def test_a_row_is_what_the_suite_found(model: str, ratio: str, low: str, high: str, without: str) -> None:
    found = judged("benchmarks/results/suite-xeon-amx-2-cores", model)

    assert said(found["collage"]) == (ratio, low, high)
    assert (said(found["without-halide"])[0] if "without-halide" in found else "the same") == without


def test_the_figure_under_a_bound_is_what_the_suite_found() -> None:
    found = judged("benchmarks/results/suite-lower-precision-epyc-2-cores", "resnet50")

    ratio, low, high = said(found["collage"])
    assert f"ResNet-50, with seeded weights, takes {ratio} of the best" in README
    assert f"{low} - {high}\n" in README
