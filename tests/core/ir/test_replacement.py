from __future__ import annotations

from pathlib import Path

import pytest

from collage_core.ir.io import model_io
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder, chain
from tests.replacing import ReplacedFiles, Write


class TestModels(ReplacedFiles):
    @pytest.fixture
    def write(self) -> Write:
        return lambda path: save_model(chain("Relu"), path)


def test_a_models_data_goes_with_it_where_a_link_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_io, "EXTERNAL_THRESHOLD_BYTES", 1)
    graph = GraphBuilder("product")
    model = graph.model(graph.op("MatMul", graph.input("x", 4, 64), graph.weight("w", 64, 64)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.onnx").symlink_to(tmp_path / "folder" / "real.onnx")

    save_model(model, tmp_path / "link.onnx")

    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["real.onnx", "real.onnx.data"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link.onnx"]
