"""Print the lines of Python of each distribution: `python -m tests.line_counts`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGET = {"collage-core": 16_000, "collage-engine": 22_500, "collage-testing": 3_200}
"""Lines that a distribution was planned to hold. More is allowed where a feature needs it; the table shows it."""


def sources() -> dict[str, Path]:
    """Return the folder of the import package of each distribution, by the distribution's name."""
    found = {
        "collage-core": ROOT / "collage_core",
        "collage-engine": ROOT / "engine" / "collage",
        "collage-testing": ROOT / "testing" / "collage_testing",
    }
    for project in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        name = project.parent.name
        found[name] = project.parent / name.replace("-", "_")
    return found


def lines_of(folder: Path) -> int:
    """Count the lines of all Python files below a folder, blank ones and comments included."""
    return sum(len(path.read_bytes().splitlines()) for path in folder.rglob("*.py"))


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    for name, folder in sources().items():
        files = sum(1 for _ in folder.rglob("*.py"))
        budget = f"  planned {BUDGET[name]:6,}" if name in BUDGET else ""
        yield f"{name:20} {lines_of(folder):7,} lines {files:4} files{budget}"


if __name__ == "__main__":
    print("\n".join(table()))
    sys.exit(0)
