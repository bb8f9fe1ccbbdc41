"""The tutorials that need no toolchain: their own examples."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.mark.parametrize("page", ["understand-the-search.md", "from-tvm.md"])
def test_examples_print_what_the_page_says(page: str) -> None:
    outcome = doctest.testfile(
        str(TUTORIALS / page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )

    assert outcome.attempted > 10
    assert outcome.failed == 0
