"""What a machine does to a program: permissions that hold for root too, files that may not grow, full disks."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ORDINARY = """
import ctypes, os
if os.geteuid() == 0:
    # without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capability.h) the permissions of files hold for root as well
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    for index in range(3):
        sets[index] &= ~0b110
    assert libc.capset(header, sets) == 0
"""
"""Code that makes the process it runs in subject to permissions, whoever runs it."""

COMMAND = "import sys\nfrom collage.cli import main\nmain(sys.argv[1:], prog_name='collage')\n"
"""Code of the command line."""


def with_tests() -> dict[str, str]:
    """Return this process's environment with the tests on Python's path, behind nothing."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path.strip(os.pathsep)}


def run_python(code: str, *arguments: object, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, under a command if wanted."""
    command = [*prefix, sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=with_tests(), capture_output=True, text=True, check=False)


@contextlib.contextmanager
def files_up_to(nbytes: int) -> Iterator[None]:
    """No file may grow beyond a size; what tries gets an error, as Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def small_disk(folder: Path, kib: int) -> list[str]:
    """A command that runs another with a disk of its own in a folder; skips the test where nobody may mount one."""
    if not _may_mount():
        pytest.skip("mounting a small disk takes user namespaces")
    return ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size={kib}k none "{folder}" && exec "$@"', "sh"]


@functools.cache
def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
        tried = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", folder]
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0
    return False
