"""Exported graphs whose weights are declared only; `benchmarks.models.export` wrote them."""

from __future__ import annotations

from pathlib import Path

import onnx

FOLDER = Path(__file__).resolve().parent


def load(name: str) -> onnx.ModelProto:
    """Load the skeleton of this name."""
    return onnx.load(FOLDER / f"{name}.onnx")
