"""Run Python as if this source tree were installed: `python -m tests.from_source -m pytest -m gpu`.

For machines without a network, or where nothing is to be installed: what an installation adds to a source tree is
metadata, by which plugins are found and versions known, and that is written into a folder that goes afterwards.
What the distributions need of others has to be installed. A toolchain whose library is missing says so itself.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BASE = (ROOT, ROOT / "engine", ROOT / "testing")
"""Folders of the projects that nothing works without."""
PROJECTS = (*BASE, *sorted(ROOT.glob("plugins/*/")), *sorted(ROOT.glob("tests/dist/*/")))
"""Folders of all projects of this repository."""


def metadata(folder: Path, name: str, version: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Write what `importlib.metadata` reads of a distribution: "The .dist-info directory" of the wheel format.

    Args:
        folder: To be on Python's path.
        name: The distribution's name.
        version: The distribution's version.
        entry_points: What each name refers to, by group.
    """
    facts = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def described(folder: Path, projects: Iterable[Path] = PROJECTS) -> list[str]:
    """Write the metadata of projects, as their own descriptions say it.

    Returns:
        What has to be on Python's path for them to be found and imported.
    """
    paths = [str(folder)]
    for project in projects:
        facts = _facts(project)
        scripts = {"console_scripts": facts["scripts"]} if "scripts" in facts else {}
        metadata(folder, facts["name"], facts["version"], facts.get("entry-points", {}) | scripts)
        paths.append(str(project))
    return paths


def environment(paths: Iterable[str]) -> dict[str, str]:
    """Return this process's environment with folders before what is on Python's path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)}


def missing(projects: Iterable[Path] = PROJECTS, requirements: Iterable[Path] = ()) -> list[str]:
    """Return what projects ask for and this Python has not got, as they ask for it.

    Optional parts and versions are not looked at: what asks for those says so itself. Nor are the distributions of
    this repository, which are used from source.

    Args:
        projects: Their folders.
        requirements: Files that ask for more, one requirement a line.
    """
    asked: list[str] = []
    for project in projects:
        asked += _facts(project)["dependencies"]
    for file in requirements:
        asked += file.read_text(encoding="utf-8").split()
    ours = {_facts(project)["name"] for project in PROJECTS}
    return [each for each in dict.fromkeys(asked) if (name := _name(each)) not in ours and not _has(name)]


def _facts(project: Path) -> dict[str, Any]:
    facts: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return facts


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0]


def _has(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    """Run Python with the arguments given, and return its exit status, or 2 if something is missing."""
    lacking, needed = missing(requirements=[ROOT / "tests" / "requirements.txt"]), missing(BASE)
    if lacking:
        print(f"this Python has not got {', '.join(lacking)}", file=sys.stderr)
    if needed:
        return 2
    # an interrupt is the child's: pytest says what ran so far, and this process waits for that
    signal.signal(signal.SIGINT, lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        done = subprocess.run(
            [sys.executable, *sys.argv[1:]], cwd=ROOT, env=environment(described(Path(folder))), check=False
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
