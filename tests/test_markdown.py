"""Markdown of the repository: paragraphs are short, links lead somewhere. Columns are checked by `tox -e lint`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 5
GENERATED = ("benchmarks/results/", "docs/generated/")
SOURCES: tuple[str, ...] = (
    "README.md",
    "benchmarks/**/*.md",
    "collage_core/*.md",
    "docs/**/*.md",
    "engine/*.md",
    "plugins/*/*.md",
)
SOURCES += ("testing/*.md", "tests/**/*.md")
ABSENT = {
    "collage/optimize.py",  # must not exist: 0021
    "collage-mylib/collage_mylib/plugin.py",  # what `collage new-plugin` writes
}
PAGES = sorted({page.relative_to(ROOT).as_posix() for glob in SOURCES for page in ROOT.glob(glob)})


def paragraphs(text: str) -> Iterator[list[str]]:
    """Runs of lines outside code, tables and headings; an item of a list is one of its own."""
    block: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or re.match(r"#|\||<!--|\s*([-*]|\d+\.|[a-z]\.) ", line):
            if block:
                yield block
            block = []
        if not (fence or fenced or not line.strip() or re.match(r"#|\||<!--", line)):
            block.append(line)
        fenced ^= fence


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith(GENERATED)])
def test_paragraphs_are_short(page: str) -> None:
    long = [block for block in paragraphs((ROOT / page).read_text(encoding="utf-8")) if len(block) > MOST_LINES]

    assert [f"{len(block)} lines: {block[0]}" for block in long] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            other = ROOT / page if not path else (ROOT / page).parent / path
            if not other.exists() or (anchor and anchor not in anchors(other.read_text(encoding="utf-8"))):
                broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("benchmarks/results/")])
def test_files_that_are_named_are_there(page: str) -> None:
    """A page names a file by its path, or by the end of it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w\-]+/)+[\w\-]+\.py)`", text)) - ABSENT

    assert {name for name in named if not any(file.endswith(f"/{name}") for file in files())} == set()


@functools.cache
def files() -> tuple[str, ...]:
    """Every Python file of the repository, from its root, which is a slash."""
    folders = ("collage_core", "engine", "testing", "plugins", "benchmarks", "tests")
    return tuple(
        f"/{file.relative_to(ROOT).as_posix()}" for folder in folders for file in (ROOT / folder).rglob("*.py")
    )


def test_paths_to_pages_in_code_lead_somewhere() -> None:
    sources = [
        file
        for folder in ("collage_core", "engine", "testing", "plugins", "benchmarks", "tests")
        for file in (ROOT / folder).rglob("*.py")
    ]
    named = {page for file in sources for page in re.findall(r"docs/[\w/\-]+\.md", file.read_text(encoding="utf-8"))}

    assert {page for page in named if page != "docs/OperatorKernels.md" and not (ROOT / page).exists()} == set()


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("# Title\n\none\ntwo\n\nthree\n", [2, 1]),
        ("one\n- two\n  two\n- three\n", [1, 2, 1]),
        ("one\n```\nx\n\ny\n```\ntwo\n| a |\n|---|\n", [1, 1]),
    ],
)
def test_what_a_paragraph_is(text: str, counts: list[int]) -> None:
    assert [len(block) for block in paragraphs(text)] == counts


def test_anchors_are_those_of_github() -> None:
    assert anchors("## What a failure costs\n### 1. Say `x`\n") == {"what-a-failure-costs", "1-say-x"}
