"""Temporary folders go with their owner, and those of a killed one with the next sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collage.temporary_folders import Swept, TemporaryFolder, sweep
from tests.hardship import with_tests

OWNER = """
import os, sys, time
from collage.temporary_folders import TemporaryFolder
folder = TemporaryFolder("worker")
(folder.path / "blobs").mkdir()
(folder.path / "blobs" / "weights").write_bytes(b"0" * 1000)
(folder.path / "link").symlink_to(sys.argv[1])
if sys.argv[2] == "forks" and os.fork() == 0:
    sys.exit()  # with all that is done at the end of Python
print(folder.path, flush=True)
time.sleep(3600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary files of this process and of those it starts."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    return temporary


def owner(link: Path, how: str = "") -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a folder, and wait until it has."""
    command = [sys.executable, "-P", "-c", OWNER, str(link), how]
    process = subprocess.Popen(command, env=with_tests(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_folder_goes_when_its_context_is_left_or_its_object_is_gone(folder: Path) -> None:
    with TemporaryFolder() as path:
        (path / "file").touch()
    assert list(folder.iterdir()) == []

    kept = TemporaryFolder("worker")
    assert [each.name for each in folder.iterdir()] == [kept.path.name]
    assert kept.path.name.startswith("collage-worker-")
    del kept
    assert list(folder.iterdir()) == []


@pytest.mark.guards(
    "a run is killed with SIGKILL: its temporary folders stay behind",
    "the next run removes them; those of living runs, of other users and of other programs stay",
    area="kills and databases",
)
def test_folders_of_killed_processes_are_swept_and_those_of_living_ones_stay(folder: Path, tmp_path: Path) -> None:
    (kept := tmp_path / "kept").write_text("by a link")
    dead, of_dead = owner(kept)
    living, of_living = owner(kept)
    end(dead)
    (foreign := folder / "collage-data").mkdir()
    (linked := folder / "collage-link").symlink_to(of_dead)
    with TemporaryFolder() as mine:
        swept = sweep()

        assert swept == Swept(folders=1, nbytes=1000 + len(os.fsencode(kept)))
        assert set(folder.iterdir()) == {of_living, foreign, linked, mine}
    assert (of_living / "blobs" / "weights").exists()
    assert kept.exists()

    end(living)
    assert sweep().folders == 1
    assert not of_living.exists()


def test_a_folder_of_another_user_stays(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, of_dead = owner(tmp_path)
    end(dead)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    assert sweep() == Swept()
    assert of_dead.exists()


def test_a_forked_process_takes_no_folder_along(folder: Path, tmp_path: Path) -> None:
    process, path = owner(tmp_path, "forks")

    assert (path / "blobs" / "weights").exists()
    assert sweep() == Swept()
    end(process)


def test_what_cannot_be_removed_is_tried_again_by_the_next(folder: Path, tmp_path: Path) -> None:
    dead, path = owner(tmp_path)
    end(dead)
    held = path / "blobs"
    if os.geteuid() == 0:
        pytest.skip("root removes what is write-protected")
    held.chmod(0o500)

    sweep()

    assert path.exists()
    held.chmod(0o700)
    sweep()
    assert not path.exists()
