"""The README's tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collage_cublas import table
from collage_cublas.library import Epilogue
from collage_cublas.patterns import FORMS

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_holds_what_the_command_writes(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    text = README.read_text(encoding="utf-8")
    between = text[text.index(table.README.begin) : text.index(table.README.end)]
    copy.write_text(text.replace(between, f"{table.README.begin}\nstale\n"), encoding="utf-8")

    table.README.main(["--write", str(copy)])

    assert copy.read_text(encoding="utf-8") == text


def test_every_form_is_one_yes_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    table.README.main([])

    assert len(re.findall(r"\byes\b", capsys.readouterr().out)) == len(FORMS)


def test_epilogues_are_named_as_the_library_names_them() -> None:
    """Those of `cublasLtEpilogue_t`: the names' parts are flags, so the table's column is checked against numbers."""
    head, *names = re.findall(r"`([A-Z_]+)` \|$", table.tables(), flags=re.MULTILINE)

    assert head == "CUBLASLT_EPILOGUE_"
    assert set(names) == {"DEFAULT", "BIAS", "RELU", "RELU_BIAS", "GELU", "GELU_BIAS"}
    numbers = {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36}
    for name in set(names):
        assert sum(Epilogue[part] for part in name.split("_")) == numbers[name]


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no"):
        table.README.written("# collage-cublas")
