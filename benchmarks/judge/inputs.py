"""Inputs of a judged model: from a file, or seeded random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper


def beside(model: Path) -> Path:
    """Return the path where `python -m benchmarks.models` writes the inputs of a model."""
    return model.with_suffix(".inputs.npz")


def read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays of an .npz file, by name."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def random(
    model: onnx.ModelProto, seed: int, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Generate random inputs: standard normal for floating-point types, 0 or 1 for others.

    Args:
        model: The model; its weights are not read.
        seed: Seed of the values.
        shapes: Shapes of inputs by name; for other inputs, a dimension that is not static becomes 1.
    """
    generator = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    result: dict[str, np.ndarray[Any, Any]] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in kind.shape.dim]
        shape = list((shapes or {}).get(value.name, shape))
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind == "f":
            result[value.name] = generator.standard_normal(shape).astype(dtype)
        else:
            result[value.name] = generator.integers(0, 2, shape).astype(dtype)
    return result
