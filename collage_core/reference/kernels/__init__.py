"""Vectorised NumPy versions of the operators that ONNX's evaluator computes with Python loops.

Each takes `(inputs, attributes, version)` and returns its outputs, or NotImplemented for a case it leaves to
ONNX's own implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

KERNELS: Mapping[str, Callable[..., Any]] = {}
