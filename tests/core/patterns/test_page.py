"""The examples of docs/plugin-authors/patterns.md."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "plugin-authors" / "patterns.md"


def test_the_examples_of_the_page_say_what_happens() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)

    assert outcome.attempted > 30
    assert outcome.failed == 0
