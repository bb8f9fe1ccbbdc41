"""Runs Python as if this source tree were installed: `python -m tests.from_source -m pytest -m gpu`.

For machines without a network, or where nothing is to be installed: what an installation adds to a source tree is
metadata, by which plugins are found and versions known, and that is written into a folder that goes afterwards.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = (ROOT, *sorted(ROOT.glob("plugins/*/")), *sorted(ROOT.glob("tests/dist/*/")))
"""Folders of all projects of this repository."""


def metadata(folder: Path, name: str, version: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Writes what `importlib.metadata` reads of a distribution: "The .dist-info directory" of the wheel format.

    Args:
        folder: To be on Python's path.
        name: Of the distribution.
        version: Likewise.
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
    """Writes the metadata of projects, as their own descriptions say it.

    Returns:
        What has to be on Python's path for them to be found and imported.
    """
    paths = [str(folder)]
    for project in projects:
        facts = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        metadata(folder, facts["name"], facts["version"], facts.get("entry-points", {}))
        paths.append(str(project))
    return paths


def environment(paths: Iterable[str]) -> dict[str, str]:
    """This process's environment with folders before what is on Python's path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)}


def missing(project: Path = ROOT) -> list[str]:
    """What a project and these tests ask for and this Python has not got, as they ask for it.

    Optional parts and versions are not looked at: what asks for those says so itself.
    """
    asked = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    asked += (project / "tests" / "requirements.txt").read_text(encoding="utf-8").split()
    return [each for each in asked if not _has(re.split(r"[^\w.-]", each)[0])]


def _has(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    """Runs Python with the arguments given; its exit status, 2 if something is missing that they take."""
    if lacking := missing():
        print(f"this Python has not got {', '.join(lacking)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        done = subprocess.run(
            [sys.executable, *sys.argv[1:]], cwd=ROOT, env=environment(described(Path(folder))), check=False
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
