"""Committed pages say what their results say, notes included, and a page that is made again loses none."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    cpu_seconds,
    expensive_attributes,
    few_rows,
    generating,
    gpu_page,
    lazy_search,
    measuring,
    metric_cases,
    native_plus_one,
    normalising,
    overhead,
    precision_cases,
    predictions,
    profiles,
    race_normalising,
    race_rules,
    repeatability,
    run_call,
    search_scale,
    sensitivity,
    shapes,
    store_queries,
    suite_page,
    two_level,
)
from benchmarks.fused_groups import __main__ as fused_groups
from benchmarks.page import machine, with_notes, written
from benchmarks.regret import pages as regret_pages

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PAGES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "bf16-emulated": lambda report: suite_page.markdown(report["models"]),
    "cpu-seconds": cpu_seconds.markdown,
    "expensive-attributes": expensive_attributes.markdown,
    "few-rows": lambda report: few_rows.markdown(report["results"], report["environment"]),
    "fused-groups": fused_groups.list_page,
    "fused-groups-race": fused_groups.race_page,
    "generating": generating.markdown,
    "gpu": lambda report: gpu_page.markdown(report["races"]),
    "lazy-search": lazy_search.markdown,
    "measuring": measuring.markdown,
    "metric": lambda report: metric_cases.markdown(report["cases"], report["environment"]),
    "native-plus-one": native_plus_one.markdown,
    "normalising": normalising.markdown,
    "predictions": predictions.markdown,
    "overhead": lambda report: overhead.markdown(report["plans"], report["tools"], report["loop_us"]),
    "precision-cases": lambda report: precision_cases.markdown(report["cases"], report["environment"]),
    "profiles": lambda report: profiles.markdown(report["profiles"], report["environment"]),
    "race-normalising": race_normalising.markdown,
    "race-rules": race_rules.markdown,
    "regret": regret_pages.markdown,
    "regret-before": regret_pages.markdown,
    "regret-race": regret_pages.raced_markdown,
    "repeatability": repeatability.markdown,
    "run-call": lambda report: run_call.markdown(report["results"]),
    "search": lambda report: search_scale.markdown(dict(report)),
    "sensitivity": sensitivity.markdown,
    "shapes": shapes.markdown,
    "store-queries": store_queries.markdown,
    "suite": lambda report: suite_page.markdown(report["models"]),
    "two-level": two_level.markdown,
}


def subject(path: Path) -> str:
    """What a page is about: its file's name without the machine."""
    return max((name for name in PAGES if path.stem.startswith(f"{name}-")), key=len, default="")


def test_every_committed_page_is_known_here() -> None:
    assert {subject(path) for path in RESULTS.glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.md")))
def test_a_committed_page_can_be_made_again_from_its_results(name: str) -> None:
    results = RESULTS / f"{name}.json"
    report = json.loads(results.read_text(encoding="utf-8"))

    page = with_notes(PAGES[subject(results)](report), report.get("notes", []))

    assert page == results.with_suffix(".md").read_text(encoding="utf-8")


def test_notes_are_kept_with_the_results_and_stand_behind_the_table(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    page = "# Title\n\n| a |\n|---|\n"

    written(results, {"models": [1]}, page, ["It was warm."])
    written(results, {"models": [1, 2]}, page, ["And then cold.", "It was warm."])

    assert json.loads(results.read_text()) == {"models": [1, 2], "notes": ["It was warm.", "And then cold."]}
    assert results.with_suffix(".md").read_text() == f"{page}\nIt was warm.\n\nAnd then cold.\n"


def test_results_that_are_all_new_have_their_own_notes_only(tmp_path: Path) -> None:
    results = tmp_path / "results.json"

    written(results, {}, "page\n", ["It was warm."])
    written(results, {}, "page\n", [], afresh=True)

    assert json.loads(results.read_text()) == {"notes": []}
    assert results.with_suffix(".md").read_text() == "page\n"


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "lazy_search",
        "native_plus_one",
        "overhead",
        "profiles",
        "run_call",
        "search_scale",
        "sensitivity",
        "suite",
        "two_level",
    ],
)
def test_every_benchmark_that_writes_a_page_takes_notes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        importlib.import_module(f"benchmarks.{name}").main(["--help"])

    assert "--note TEXT" in capsys.readouterr().out


def test_machines_of_one_name_are_told_apart_by_their_vector_extensions() -> None:
    host = {"cpu": "some", "cores": 2, "system": "Linux 6"}
    assert machine(host | {"vectors": ["AVX2", "AVX-512"]}) == "some (AVX2, AVX-512), 2 cores, Linux 6"
    assert machine(host | {"vectors": []}) == machine(host) == "some, 2 cores, Linux 6"
