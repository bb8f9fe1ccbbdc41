"""The examples of the test kit's README, which need nothing but core and the kit."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "testing" / "README.md"


def test_the_examples_of_the_readme_say_what_happens() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False)

    assert outcome.attempted > 5
    assert outcome.failed == 0
