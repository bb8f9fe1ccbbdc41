"""What only looks like a file: opening a pipe waits for who writes it, and some devices never end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_core.ir.io.special_files import why_no_file
from tests.hardship import with_tests

TRYING = """
import json, sys
from pathlib import Path
from collage.control.plan_file import read_plan
from collage.runtime.package import load_package
from collage.store import open_database
from collage.values.npz_file import read_arrays
from collage_core.errors import CollageError
from collage_core.ir.io.model_io import load_model

tried = {
    "model": load_model, "package": load_package, "inputs": read_arrays, "plan": read_plan,
    "database": open_database, "database to read": lambda path: open_database(path, read_only=True),
}
said = {}
for kind, path in json.loads(sys.argv[1]).items():
    for what, read in tried.items():
        try:
            read(Path(path))
        except CollageError as error:
            said[f"{what}: {kind}"] = str(error)
print(json.dumps(said))
"""


@pytest.fixture
def special(tmp_path: Path) -> Iterator[dict[str, str]]:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        yield {
            "it is a pipe": str(tmp_path / "pipe"),
            "it is a device": str(tmp_path / "link"),
            "it is a socket": str(tmp_path / "socket"),
            "it is a directory": str(tmp_path),
        }


@pytest.mark.guards(
    "a pipe, an endless device, a socket or a folder as model, package, inputs, plan or tuning database",
    "one error that says what it is; no wait",
    area="input",
)
def test_special_files_are_refused_in_one_error_without_waiting(special: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", TRYING, json.dumps(special)],
        env=with_tests(),
        capture_output=True,
        text=True,
        timeout=120,  # a wait for a pipe has no end
        check=True,
    )

    said = json.loads(ran.stdout)
    assert len(said) == 6 * len(special)
    for name, message in said.items():
        assert name.partition(": ")[2] in message, name
        assert len(message) < 500


def test_files_and_links_to_them_are_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")

    assert [why_no_file(tmp_path / name) for name in ("file", "link", "dangling", "nowhere")] == [""] * 4
