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
    channels = x.shape[1]
    before, after = min((size - 1) // 2, channels - 1), min(size // 2, channels - 1)
    squares = np.square(x, dtype=np.float64)
    total = squares.copy()
    for offset in range(1, 1 + max(before, after)):
        if offset <= before:
            total[:, offset:] += squares[:, :-offset]
        if offset <= after:
            total[:, :-offset] += squares[:, offset:]
    scale = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) / size * total
    return ((x / scale ** attributes.get("beta", 0.75)).astype(x.dtype),)
