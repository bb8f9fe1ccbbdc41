"""Run mypy over the whole tree: `python -m tests.check_types`.

The tests of each plugin have a run of their own: their modules share names, and those of the tests of core and engine.
"""

from __future__ import annotations

import subprocess
import sys

from tests.from_source import ROOT


def main() -> int:
    """Run mypy over what its settings name, then over each plugin's tests, and return its worst exit status."""
    worst = 0
    for folder in ("", *(str(tests.relative_to(ROOT)) for tests in sorted(ROOT.glob("plugins/*/tests")))):
        print(f"mypy {folder}", flush=True)
        command = [sys.executable, "-m", "mypy", "--cache-dir", f".mypy_cache/{folder}", *filter(None, [folder])]
        worst = max(worst, subprocess.run(command, cwd=ROOT, check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
