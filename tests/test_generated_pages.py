"""Pages that programs make are what they would make now; those that take a library to make are tested beside it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.onnx_nodes import table

ROOT = Path(__file__).parents[1]


def test_the_page_of_node_tests_is_made_of_the_results() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "onnx-node-tests.json").read_text(encoding="utf-8"))

    assert (ROOT / "docs" / "generated" / "onnx-node-tests.md").read_text(encoding="utf-8") == table.page(found)


def test_every_generated_page_is_listed_with_its_command() -> None:
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    for page in (ROOT / "docs" / "generated").glob("*.md"):
        assert f"| {page.name} | `python -m " in listed
