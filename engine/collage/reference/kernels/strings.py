"""Compute StringNormalizer as the standard defines it.

ONNX's own version strips accents, drops empty strings, looks for stop words inside longer strings, and changes
the locale of the process (onnx 1.23, `onnx/reference/ops/op_string_normalizer.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array

_CHANGES: Mapping[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def string_normalizer(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute StringNormalizer: elements that are stop words are dropped, the others change case."""
    [x] = inputs
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in x.reshape(-1).tolist()]
    compared: Callable[[str], str] = str if attributes.get("is_case_sensitive", 0) else str.lower
    dropped = set(map(compared, attributes.get("stopwords") or ()))
    change = _CHANGES[str(attributes.get("case_change_action", "NONE"))]
    kept = [change(word) for word in words if compared(word) not in dropped] or [""]
    return (np.array(kept, dtype=object).reshape(*x.shape[:-1], -1),)
