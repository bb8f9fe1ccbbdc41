"""Models whose weights are in a file beside them, as those of large models are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir


def outside(model: onnx_ir.Model, folder: Path) -> onnx_ir.Model:
    """Return a copy of a model whose weights are read from a file when they are needed.

    Args:
        model: The model.
        folder: Parent of a directory for the files, which has to stay as long as the copy.
    """
    path = Path(tempfile.mkdtemp(dir=folder)) / "model.onnx"
    onnx_ir.save(model, path, external_data="weights.bin", size_threshold_bytes=0)
    return onnx_ir.load(path)
