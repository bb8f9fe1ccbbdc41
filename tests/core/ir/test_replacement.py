from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from collage.cli.arrays import write_values
from collage.report.files import write_text
from collage.runtime.package.archive import ArchiveWriter
from collage_core.ir.io import model_io
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder, chain

Write = Callable[[Path], None]


def write_archive(path: Path) -> None:
    with ArchiveWriter(path) as archive:
        archive.add("x", b"y")


def write_model(path: Path) -> None:
    save_model(chain("Relu"), path)


ALL = pytest.mark.parametrize(
    "write",
    [
        write_archive,
        write_model,
        lambda path: write_text(path, "text"),
        lambda path: write_values(path, {"y": np.zeros(2)}),
    ],
    ids=["package", "model", "text", "arrays"],
)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@ALL
@pytest.mark.usefixtures("umask")
def test_a_new_file_is_as_readable_as_any(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "umask", None)  # setting it, if only to ask, is seen by files other threads make meanwhile
        write(tmp_path / "out")

    assert mode(tmp_path / "out") == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@ALL
@pytest.mark.parametrize("kept", [0o600, 0o664])
def test_one_that_replaces_another_is_as_readable_as_that(write: Write, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(kept)

    write(path)

    assert path.read_bytes() != b"old"
    assert mode(path) == kept


@ALL
@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_leads_to_is_replaced(write: Write, there: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    if there:
        real.write_bytes(b"old")
    link.symlink_to(real)

    write(link)

    assert link.is_symlink()
    assert real.read_bytes() not in (b"old", b"")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "link", "real"]


def test_a_models_data_goes_with_it_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_io, "EXTERNAL_THRESHOLD_BYTES", 1)
    graph = GraphBuilder("product")
    model = graph.model(graph.op("MatMul", graph.input("x", 4, 64), graph.weight("w", 64, 64)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.onnx").symlink_to(tmp_path / "folder" / "real.onnx")

    save_model(model, tmp_path / "link.onnx")

    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["real.onnx", "real.onnx.data"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link.onnx"]
