"""Keep the lists of plugins in tox.ini: `python -m tests.plugin_lists --write`; without `--write` it says what differs.

Everything else finds plugins by their folders. What a plugin's tests need besides its dependencies, its own
pyproject.toml says under `[tool.collage]`: `tests = ["halide>=21.0; sys_platform == 'linux'"]`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from tests.from_source import ROOT

TOX = ROOT / "tox.ini"
PLUGINS = ("    -e testing\n", "    -e tests/dist/collage-sampler\n")
"""Lines of `[with-plugins]` before and behind the plugins."""
LIBRARIES = ("    # libraries of toolchains, as the plugins' pyproject.toml say\n", "set_env =\n")
"""Lines of `[testenv]` before and behind what tests of plugins need besides."""


def updated(text: str, root: Path = ROOT) -> str:
    """Return the text of tox.ini with the lists as the folders say.

    Args:
        text: The text now.
        root: The folder with `plugins`.

    Raises:
        ValueError: If a list is not where it should be.
    """
    folders = sorted(root.glob("plugins/*/pyproject.toml"))
    asked = [
        f"    {line}\n"
        for path in folders
        for line in tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("collage", {}).get("tests", [])
    ]
    text = _between(text, *PLUGINS, [f"    -e plugins/{path.parent.name}\n" for path in folders])
    return _between(text, *LIBRARIES, asked)


def _between(text: str, before: str, behind: str, lines: list[str]) -> str:
    found = re.search(f"{re.escape(before)}(.*?){re.escape(behind)}", text, re.DOTALL)
    if found is None:
        raise ValueError(f"tox.ini has no line {before.strip()!r} with {behind.strip()!r} behind it")
    return text[: found.start(1)] + "".join(lines) + text[found.end(1) :]


def main() -> int:
    """Write the lists, or say whether they are right; return the exit status."""
    text = TOX.read_text(encoding="utf-8")
    if (wanted := updated(text)) == text:
        return 0
    if "--write" not in sys.argv[1:]:
        print("tox.ini lists other plugins than there are: run python -m tests.plugin_lists --write", file=sys.stderr)
        return 1
    TOX.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
