"""The docstring of a function begins with a verb: its first word is in `docstring_verbs.txt`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERBS = frozenset((Path(__file__).parent / "docstring_verbs.txt").read_text(encoding="utf-8").split())
PLUGINS = sorted(f"plugins/{each.name}" for each in ROOT.glob("plugins/*"))
SOURCES = ("collage_core", "engine", "testing", "benchmarks", *PLUGINS)


def first_words(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and first word of each function's docstring; a property's says what it is, as an attribute's does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not any("property" in ast.unparse(each) for each in node.decorator_list):
                yield node.lineno, node.name, re.match(r"\S*?(?=[\s.,:;]|$)", text)[0]  # type: ignore[index]


@pytest.mark.parametrize("folder", SOURCES)
def test_docstrings_of_functions_begin_with_a_verb(folder: str) -> None:
    offenders = [
        f"{file.relative_to(ROOT)}:{line}: {name} begins with {word!r}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        if "tests" not in file.relative_to(ROOT / folder).parts
        for line, name, word in first_words(file.read_text(encoding="utf-8"))
        if word not in VERBS
    ]

    assert not offenders, "\n" + "\n".join(offenders)


def test_the_list_is_sorted() -> None:
    listed = (Path(__file__).parent / "docstring_verbs.txt").read_text(encoding="utf-8").split()

    assert listed == sorted(set(listed))


def test_what_is_looked_at() -> None:
    source = '''
def runs():
    """Runs it."""

class Thing:
    @property
    def size(self):
        """How large it is."""

    def without(self):
        return 1

    async def measure(self):
        """Measure: in microseconds."""
'''

    assert [(name, word) for _, name, word in first_words(source)] == [("runs", "Runs"), ("measure", "Measure")]
