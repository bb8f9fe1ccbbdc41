"""What holds of every file that is written in place of another, whoever writes it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[Path], None]


class ReplacedFiles:
    """Tests of a class that gives the fixture `write`, which writes a file."""

    def test_a_new_file_is_as_readable_as_any(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = os.umask(0o027)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "umask", None)  # setting it, if only to ask, is seen by other threads' files
                write(tmp_path / "out")
        finally:
            os.umask(before)

        assert _mode(tmp_path / "out") == 0o640
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    @pytest.mark.parametrize("kept", [0o600, 0o664])
    def test_one_that_replaces_another_is_as_readable_as_that(self, write: Write, kept: int, tmp_path: Path) -> None:
        path = tmp_path / "out"
        path.write_bytes(b"old")
        path.chmod(kept)

        write(path)

        assert path.read_bytes() != b"old"
        assert _mode(path) == kept

    @pytest.mark.parametrize("there", [True, False])
    def test_what_a_link_leads_to_is_replaced(self, write: Write, there: bool, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        real, link = tmp_path / "folder" / "real", tmp_path / "link"
        if there:
            real.write_bytes(b"old")
        link.symlink_to(real)

        write(link)

        assert link.is_symlink()
        assert real.read_bytes() not in (b"old", b"")
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "link", "real"]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
