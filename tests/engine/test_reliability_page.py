"""Every row of `docs/reliability.md` names tests, and what it names is there: files, functions and their cases."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
NOTHING = "nothing contains it"
"""What a row says in place of a test when what it tells of is not prevented."""

_CITATION = re.compile(r"(?P<file>(?:tests|plugins)/[\w/\-]+\.py)?(?:::(?P<name>test_\w+))?(?:\[(?P<case>.+)\])?")


def rows(page: str) -> Iterator[tuple[str, str]]:
    """Case and test column of every row of a table."""
    for line in page.splitlines():
        cells = line.strip().strip("|").split(" | ")
        if line.startswith("|") and not line.startswith(("|---", "| case |")):
            yield cells[0].strip(), cells[-1].strip() if len(cells) == 3 else ""


def complaints(page: str, cases: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with the tests a page names.

    Args:
        page: Its text. A citation without a file is of the file the row named last; a case alone, of the tests it
            named last. In a case, `...` and `*` stand for anything.
        cases: Names of the tests of a file with their cases, of each file of which cases are named.
    """
    found = []
    for case, tests in rows(page):
        cited = re.findall(r"`([^`]+)`", tests)
        if not cited and tests != NOTHING:
            found.append(f"{case}: no test")
        file, names = "", [r"test_\w+"]
        for citation in cited:
            match = _CITATION.fullmatch(citation)
            file = (match and match["file"]) or file
            if not match or not (ROOT / file).is_file():
                found.append(f"{case}: {citation} is no test")
                continue
            if match["name"]:
                names = [match["name"]] if match["file"] else [*names, match["name"]]
            elif match["file"]:
                names = [r"test_\w+"]
            text = (ROOT / file).read_text(encoding="utf-8")
            if not re.search(rf"def {names[-1]}\(", text):
                found.append(f"{case}: {file} has no {names[-1]}")
            wanted = re.escape(match["case"] or "").replace(r"\*", ".*").replace(r"\.\.\.", ".*")
            pattern = re.compile(rf"({'|'.join(names)})\[{wanted}(-.*)?\]")
            if match["case"] and not any(pattern.fullmatch(each) for each in cases.get(file, ())):
                found.append(f"{case}: {file} has no case {match['case']!r} of {' or '.join(names)}")
    return found


@pytest.fixture(scope="module")
def cases() -> dict[str, list[str]]:
    """What pytest collects of the files of which the page names cases."""
    files: set[str] = set()
    for _, tests in rows(PAGE.read_text(encoding="utf-8")):
        if "[" in tests:
            files.update(re.findall(r"`((?:tests|plugins)/[\w/\-]+\.py)", tests))
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"]
    run = subprocess.run([*command, *sorted(files)], cwd=ROOT, capture_output=True, text=True, check=True)
    collected: dict[str, list[str]] = {}
    for line in run.stdout.splitlines():
        file, separator, name = line.partition("::")
        if separator:
            collected.setdefault(file, []).append(name)
    return collected


def test_every_test_the_page_names_is_there(cases: Mapping[str, Sequence[str]]) -> None:
    assert complaints(PAGE.read_text(encoding="utf-8"), cases) == []


def test_the_page_names_tests() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert len(list(rows(text))) > 120
    assert text.count("::test_") > 190


HERE = "tests/engine/test_reliability_page.py"
CASES = {HERE: ["test_what_is_wrong_is_found[no test-]", "test_the_page_names_tests"]}


@pytest.mark.parametrize(
    ("wrong", "tests"),
    [
        ("no test", ""),
        ("no test", "-"),
        ("no test", "the same"),
        ("is no test", "`tests/unit/test_never.py::test_x`"),
        ("is no test", "`::test_the_page_names_tests`"),
        ("is no test", f"`{HERE}` and `docs/style.md`"),
        ("has no test_never", f"`{HERE}::test_never`"),
        ("has no test_never", f"`{HERE}::test_the_page_names_tests`, `::test_never`"),
        ("has no case 'a case'", f"`{HERE}[a case]`"),
        ("has no case 'a case'", f"`{HERE}::test_what_is_wrong_is_found[no test-...]`, `[a case]`"),
        ("has no case 'no'", f"`{HERE}::test_what_is_wrong_is_found[no]`"),
        ("has no case 'no test'", f"`{HERE}::test_the_page_names_tests[no test]`"),
    ],
)
def test_what_is_wrong_is_found(wrong: str, tests: str) -> None:
    [said] = complaints(f"| case | what happens | test |\n|---|---|---|\n| it rains | it is wet | {tests} |\n", CASES)

    assert wrong in said


@pytest.mark.parametrize(
    "tests",
    [
        NOTHING,
        f"`{HERE}`",
        f"`{HERE}::test_the_page_names_tests` (slow), `::test_what_is_wrong_is_found[no test]`",
        f"`{HERE}::test_the_page_names_tests`, `::test_what_is_wrong_is_found`, `[no *]`; `{HERE}[no test-...]`",
    ],
)
def test_what_is_right_is_not_complained_of(tests: str) -> None:
    assert complaints(f"| it rains | it is wet | {tests} |", CASES) == []
