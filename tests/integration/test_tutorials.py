"""The tutorials that use toolchains, followed to the letter: every block runs, one after the other, in one shell.

The blocks that install are left out: the environment of the tests stands for what they make. `tox -e tutorials` begins
with them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.commands.environments import Environment

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
WITH_TOOLCHAINS = ("bound-the-error.md", "deploy-a-model.md", "many-shapes.md", "plugin-in-thirty-minutes.md")
FIRST = "deploy-a-model.md"
INSTALLS = "python3 -m venv "
LITERALLY = "COLLAGE_TUTORIALS_INSTALL"
"""Environment variable: install as the tutorials say, from a copy of the repository."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each block of a tutorial."""
    return re.findall(
        r"^```(\w+)\n(.*?)^```$", (TUTORIALS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def installation(page: str) -> str:
    """The block that installs what a tutorial needs: its own, or that of the first tutorial, which it refers to."""
    for text in (text for where in (page, FIRST) for _, text in blocks(where)):
        if text.startswith(INSTALLS):
            return text
    raise AssertionError(f"neither {page} nor {FIRST} has a block that begins with {INSTALLS!r}")


def script(page: str, *, installing: bool) -> str:
    """A tutorial as one shell script that stops at the first failure."""
    lines = ["set -e", *([installation(page)] if installing else [])]
    for language, text in blocks(page):
        if language == "python":
            lines.append(f"python - <<'END_OF_BLOCK'\n{text}END_OF_BLOCK")
        elif not text.startswith(INSTALLS):
            lines.append(text)
    return "\n".join(lines)


def test_every_tutorial_is_followed_by_a_test() -> None:
    without = {"understand-the-search.md", "from-tvm.md"}

    assert {path.name for path in TUTORIALS.glob("*.md")} == {*WITH_TOOLCHAINS, *without}


@pytest.mark.parametrize("page", WITH_TOOLCHAINS)
def test_blocks_are_of_languages_that_run(page: str) -> None:
    assert {language for language, _ in blocks(page)} == {"python", "sh"}


@pytest.mark.slow
@pytest.mark.plugins
@pytest.mark.parametrize("page", WITH_TOOLCHAINS)
def test_a_tutorial_works_as_it_is_written(page: str, tmp_path: Path) -> None:
    installing = bool(os.environ.get(LITERALLY))
    folder = tmp_path / "clone"
    if installing:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        python = Path(sys.executable)
    else:
        folder.mkdir()
        python = Environment(tmp_path / "env", without=()).python
        (python.parent / "collage").write_text(f'#!/bin/sh\nexec {python} -m collage.cli "$@"\n')
        (python.parent / "collage").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    environment["COLLAGE_TUNING_DB"] = str(tmp_path / "tuning.sqlite")

    done = subprocess.run(
        ["bash", "-c", script(page, installing=installing)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
