from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.report.files import write_pieces, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    write_text(path, "new µs\n")

    assert path.read_text(encoding="utf-8") == "new µs\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_survives_a_writer_that_fails_half_way(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def pieces() -> Iterator[str]:
        yield "ne"
        raise RuntimeError("out of words")

    with pytest.raises(RuntimeError, match="out of words"):
        write_pieces(path, pieces())

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_as_readable_as_any_new_one(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    write_text(tmp_path / "report", "")

    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
