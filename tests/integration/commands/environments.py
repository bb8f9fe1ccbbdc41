"""Environments like this one, but without some distributions."""

from __future__ import annotations

import fnmatch
import subprocess
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path


class Environment:
    """A virtual environment that has what this Python has, but for some distributions, as if they were uninstalled.

    Args:
        folder: Where it is made.
        without: Names of distributions.
    """

    def __init__(self, folder: Path, without: Sequence[str]) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.python = folder / "bin" / "python"
        paths = {"base": str(folder), "platbase": str(folder)}
        here = Path(sysconfig.get_path("purelib", vars=paths))
        names = [each.replace("-", "_") for each in without]
        for each in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
            for entry in Path(each).iterdir():
                # packages, their metadata, and the files of editable installs
                patterns = [pattern for name in names for pattern in (name, f"{name}-*", f"*__editable__*{name}*")]
                if not any(fnmatch.fnmatch(entry.name, pattern) for pattern in patterns):
                    (here / entry.name).symlink_to(entry)

    def run(self, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run code, with nothing but what is installed on its path."""
        command = [str(self.python), "-P", "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)
