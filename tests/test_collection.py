"""No test is left out because of the name of its folder."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_pytest_looks_into_every_folder_with_code(pytestconfig: pytest.Config) -> None:
    left_out = pytestconfig.getini("norecursedirs")
    files = [
        path.relative_to(ROOT) for folder in pytestconfig.getini("testpaths") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    folders = {part for path in files for part in path.parts[:-1] if ".tox" not in path.parts}

    assert "engine" in folders
    assert [folder for folder in sorted(folders) if any(fnmatch.fnmatch(folder, each) for each in left_out)] == []
