"""The README's tables are those that the patterns, types and devices make."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_cutlass.architectures import ARCHITECTURES
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.patterns import FORMS
from collage_cutlass.table import README, tables

PAGE = Path(__file__).parents[1] / "README.md"


def test_the_readme_has_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert README.written(page) == page, (
        "run `python -m collage_cutlass.table --write README.md` in the plugin's folder"
    )


def test_the_tables_name_every_form_type_and_device() -> None:
    made = tables()

    named = {cell for row in made.splitlines() for cell in row.split("`") if cell.startswith("cutlass.")}
    assert set(FORMS) == named  # what is never taken is named without the toolchain
    assert all(f"`sm_{each.name}` | {each.specifier}" in made for each in ARCHITECTURES)
    assert {f"`cutlass(precision={name})`" in made for name in ("tf32", "fp16", "bf16")} == {True}
    assert sum(row.startswith("| `cutlass") for row in made.splitlines()) == len(NUMBERS)


def test_another_row_changes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{README.begin}\nold\n{README.end}\nafter\n", encoding="utf-8")

    README.main(["--write", str(page)])

    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert tables() in text
    assert "old" not in text
    with pytest.raises(ValueError, match="has no"):
        README.written("no marks")
