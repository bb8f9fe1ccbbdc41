"""Run mypy over the whole tree: `python -m tests.check_types`.

The tests of each plugin, and each template of a plugin, have a run of their own: their modules share names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.from_source import ROOT


def main() -> int:
    """Run mypy over what its settings name, then over each plugin's tests, and return its worst exit status."""
    worst = 0
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, sorted(ROOT.glob("plugins/*"))))}
    apart: dict[Path, list[Path]] = {tests: [tests] for tests in sorted(ROOT.glob("plugins/*/tests"))}
    # named one by one: its settings leave these folders out
    apart |= {each: sorted(each.rglob("*.py")) for each in sorted(ROOT.glob("testing/collage_testing/template/*/"))}
    for folder, what in [(ROOT, list[Path]()), *apart.items()]:
        name = "" if folder == ROOT else str(folder.relative_to(ROOT))
        print(f"mypy {name}", flush=True)
        command = [sys.executable, "-m", "mypy", "--cache-dir", f".mypy_cache/{name}", *map(str, what)]
        worst = max(worst, subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
