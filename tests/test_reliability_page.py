"""The page of what is tested to go wrong: it is what the markers say, and the parameters they name are there."""

from __future__ import annotations

import fnmatch
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests import reliability_page
from tests.reliability_page import PAGE, ROOT, Guard, guards_of, page, problems

RAIN = Guard(file="tests/test_rain.py", test="test_rain", case="it rains", outcome="it is wet", area="devices")


@functools.cache
def all_guards() -> list[Guard]:
    """Those of the repository, read once: it takes seconds."""
    return reliability_page.all_guards()


def test_the_page_is_what_the_command_writes() -> None:
    written = PAGE.read_text(encoding="utf-8")

    assert written == page(all_guards()), "run `python -m tests.reliability_page --write`"


def test_each_case_says_once_what_happens() -> None:
    guards = all_guards()

    assert problems(guards) == []
    assert len({guard.case for guard in guards}) > 150
    assert len(guards) > 280


@pytest.mark.plugins  # tests of devices are not collected without
def test_parameters_that_markers_name_are_there() -> None:
    limited = [guard for guard in all_guards() if guard.cases]
    files = sorted({guard.file for guard in limited})
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"]
    run = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    collected = run.stdout.splitlines()

    for guard in limited:
        for case in guard.cases:
            node = f"{guard.file}::{guard.test}"
            wanted = [f"{node}[[]{case}]", f"{node}[[]{case}-*]"]
            assert any(fnmatch.fnmatchcase(each, glob) for each in collected for glob in wanted), (node, case)


SOURCE = """
import pytest

pytestmark = [pytest.mark.plugins, pytest.mark.guards("it hails")]

@pytest.mark.slow
@pytest.mark.guards("it rains", "it is wet", area="devices")
@pytest.mark.guards("it "
                    "hails", "it is loud", area="devices", cases=("large-*",))
def test_weather() -> None:
    pass

def test_nothing() -> None:
    pass
"""


def test_markers_are_read_from_the_source() -> None:
    assert list(guards_of(SOURCE, "tests/test_w.py")) == [
        Guard(file="tests/test_w.py", test="", case="it hails"),
        Guard(
            file="tests/test_w.py", test="test_weather", case="it rains", outcome="it is wet", area="devices", slow=True
        ),
        Guard(
            file="tests/test_w.py",
            test="test_weather",
            case="it hails",
            outcome="it is loud",
            area="devices",
            cases=("large-*",),
            slow=True,
        ),
    ]


@pytest.mark.parametrize(
    ("guards", "problem"),
    [
        ([Guard(file="t", test="t", case="it snows")], "it snows: 0 markers say what happens, not one"),
        ([RAIN, RAIN], "it rains: 2 markers say what happens, not one"),
        ([Guard(file="t", test="t", case="it snows", outcome="white", area="sky")], "it snows: 'sky' is none of"),
    ],
)
def test_what_is_wrong_with_markers_is_found(guards: list[Guard], problem: str) -> None:
    [found] = problems(guards)

    assert found.startswith(problem)


def test_a_row_names_all_tests_of_its_case() -> None:
    other = Guard(file="tests/test_sky.py", test="", case="it rains", slow=True)

    assert "| it rains | it is wet | `tests/test_rain.py::test_rain`, `tests/test_sky.py` (slow) |" in page(
        [RAIN, other]
    )


def test_every_marked_file_is_found() -> None:
    """A marker in a helper module would be read by nobody."""
    marked = {
        file.relative_to(ROOT).as_posix()
        for folder in ("tests", "plugins")
        for file in (ROOT / folder).rglob("*.py")
        if "pytest.mark.guards(" in file.read_text(encoding="utf-8")
    }

    assert marked - {Path(__file__).relative_to(ROOT).as_posix(), "tests/reliability_page.py"} == {
        guard.file for guard in all_guards()
    }
