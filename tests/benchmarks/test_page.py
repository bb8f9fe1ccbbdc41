"""Committed pages say what their results say, notes included, and a page that is made again loses none."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lazy_search, native_plus_one, overhead, search_scale, suite, two_level
from benchmarks.page import with_notes, written

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PAGES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "bf16-emulated": lambda report: suite.markdown(report["models"]),
    "lazy-search": lazy_search.markdown,
    "native-plus-one": native_plus_one.markdown,
    "overhead": lambda report: overhead.markdown(report["plans"], report["tools"], report["loop_us"]),
    "search": lambda report: search_scale.markdown(dict(report)),
    "suite": lambda report: suite.markdown(report["models"]),
    "two-level": two_level.markdown,
}


_STEM = re.compile(r"(?P<name>.+)-(cascade-lake|zen-4)-\d+-cores")


def test_every_committed_page_is_known_here() -> None:
    found = {path.stem: _STEM.fullmatch(path.stem) for path in RESULTS.glob("*.md")}

    assert not [stem for stem, match in found.items() if match is None]
    assert {match["name"] for match in found.values() if match} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_can_be_made_again_from_its_results(name: str) -> None:
    found = [path for path in RESULTS.glob("*.json") if (match := _STEM.fullmatch(path.stem)) and match["name"] == name]

    assert found
    for results in found:
        report = json.loads(results.read_text(encoding="utf-8"))
        page = with_notes(PAGES[name](report), report.get("notes", []))
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
    "name", ["gpu", "lazy_search", "native_plus_one", "overhead", "search_scale", "suite", "two_level"]
)
def test_every_benchmark_that_writes_a_page_takes_notes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        importlib.import_module(f"benchmarks.{name}").main(["--help"])

    assert "--note TEXT" in capsys.readouterr().out
