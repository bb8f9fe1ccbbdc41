"""Compute normalisation over neighbouring channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def lrn(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any]:
    """Compute LRN; sums in float64.

    ONNX's evaluator loops over as many channels as the batch has images (onnx 1.23, `op_lrn.py`), which its own test
    does not see: there both are five.
    """
    x, size = inputs[0], attributes["size"]
    before, after = (size - 1) // 2, size // 2
    channels = x.shape[1]
    squares = np.square(x.astype(np.float64))
    padded = np.pad(squares, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = np.zeros_like(squares)
    for offset in range(size):
        total += padded[:, offset : offset + channels]
    scale = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) / size * total
    return ((x / scale ** attributes.get("beta", 0.75)).astype(x.dtype),)
