"""Represent optional values: a present one by itself, an absent one by None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def optional(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any]:
    """Compute Optional.

    ONNX's puts the value into a list (onnx 1.23, `op_optional.py`), which its own OptionalGetElement does not undo.
    """
    del attributes
    return (inputs[0] if inputs else None,)
