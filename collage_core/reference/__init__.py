"""The numeric reference: ONNX's own operators, node by node, and how to compare with them."""

from collage_core.reference.compare import Discrepancy, compare, relative_error
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
