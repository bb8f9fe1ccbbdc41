"""Every test that `docs/reliability.md` names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
_NAMED = re.compile(r"`((?:tests|plugins)/[\w/\-]+\.py)?::(\w+)[^`]*`")


def named() -> list[tuple[str, str]]:
    """File and name of each test; one without a file is in the file named last."""
    found, file = [], ""
    for match in _NAMED.finditer(PAGE.read_text(encoding="utf-8")):
        file = match[1] or file
        found.append((file, match[2]))
    return found


@pytest.mark.parametrize("file", sorted({file for file, _ in named()}))
def test_the_tests_named_are_there(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")

    assert [name for other, name in named() if other == file and f"def {name}(" not in text] == []


def test_the_page_names_tests() -> None:
    assert len(named()) > 60
