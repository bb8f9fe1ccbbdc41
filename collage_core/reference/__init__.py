"""The numeric reference: ONNX's own operators, node by node, and how to compare with them.

ONNX's operators are imported when something is first evaluated: a worker only compares, and they are a sixth of what it
would import.
"""

import importlib
from typing import TYPE_CHECKING, Any

from collage_core.reference.compare import Discrepancy, compare, relative_error

if TYPE_CHECKING:
    from collage_core.reference.evaluator import Evaluation, Fallback, NodeEvaluator, evaluate

__all__ = [
    "Discrepancy",
    "Evaluation",
    "Fallback",
    "NodeEvaluator",
    "compare",
    "evaluate",
    "relative_error",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.evaluator"), name)
    globals()[name] = value
    return value
