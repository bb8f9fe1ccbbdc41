"""The README's table is the one that the patterns make."""

from __future__ import annotations

from pathlib import Path

from collage_cudnn.patterns import FORMS
from collage_cudnn.table import README, table

PAGE = Path(__file__).parents[1] / "README.md"


def test_the_readme_has_the_table_of_the_patterns() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert README.written(page) == page, "run `python -m collage_cudnn.table --write README.md` in the plugin's folder"


def test_the_table_names_every_form() -> None:
    rows = [row.split(" | ") for row in table().splitlines() if row.startswith("| `cudnn.")]
    named = {row[0].strip("| `") for row in rows if len(row) > 2}
    longer = {
        f"{name}_{each}"
        for name, row in ((row[0].strip("| `"), row) for row in rows if len(row) > 2)
        for each in row[2].split(", ")
        if each.strip()
    }

    assert named | longer == set(FORMS)
