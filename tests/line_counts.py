"""Print the lines of Python of each distribution: `python -m tests.line_counts`.

Ends with status 1 if a distribution holds more than its bound: the change that needs the lines raises the bound too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOUNDS = {"collage-core": 21_500, "collage-engine": 55_000, "collage-testing": 6_000}
"""Most lines that a distribution may hold; see `docs/design/0020-four-kinds-of-distribution.md`."""


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


def lines_of(source: str) -> tuple[int, int]:
    """Count all lines of a module, blank ones and comments included, and those of its docstrings."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        # a docstring, of an attribute too: a string that stands alone
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(source.splitlines()), len(documented)


def table() -> Iterator[tuple[str, bool]]:
    """Yield the lines of the table, each with whether the distribution is within its bound."""
    for name, folder in sources().items():
        counts = [lines_of(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]
        total, documented = (sum(column) for column in zip(*counts, strict=True))
        bound = BOUNDS.get(name)
        row = f"{name:20} {total:7,} lines, {documented:5,} of them docstrings, {len(counts):4} files"
        yield row + (f", at most {bound:,}" if bound else ""), bound is None or total <= bound


if __name__ == "__main__":
    rows = list(table())
    print("\n".join(row for row, _ in rows))
    sys.exit(any(not within for _, within in rows))
