"""The examples of docs/plugin-authors/profiles.md."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "plugin-authors" / "profiles.md"


def test_the_examples_of_the_page_say_what_happens() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False)

    assert outcome.attempted > 8
    assert outcome.failed == 0
