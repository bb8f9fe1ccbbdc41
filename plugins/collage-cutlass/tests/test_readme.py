"""The README's table is the one that the patterns make."""

from __future__ import annotations

from pathlib import Path

from collage_cutlass.patterns import FORMS
from collage_cutlass.table import table

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_has_the_table_of_the_patterns() -> None:
    assert table() in README.read_text(encoding="utf-8"), "put what `python -m collage_cutlass.table` prints into it"


def test_the_table_names_every_form() -> None:
    named = {cell for row in table().splitlines() for cell in row.split("`") if cell.startswith("cutlass.")}

    assert set(FORMS) <= named
