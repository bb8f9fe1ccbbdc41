"""No test is left out because of the name of its folder."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_pytest_looks_into_every_folder_with_code(pytestconfig: pytest.Config) -> None:
    """Of the tests' own folders into those with tests: the others are what tests install."""
    left_out = pytestconfig.getini("norecursedirs")
    folders = set[str]()
    for folder in pytestconfig.getini("testpaths"):
        for path in ROOT.glob(f"{folder}/**/*.py"):
            if folder != "tests" or path.name.startswith("test_"):
                folders.update(path.relative_to(ROOT).parts[:-1])

    assert {"engine", "build"} <= folders
    assert [
        each for each in sorted(folders - {"__pycache__"}) if any(fnmatch.fnmatch(each, name) for name in left_out)
    ] == []
