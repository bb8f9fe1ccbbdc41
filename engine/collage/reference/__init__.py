"""The numeric reference: ONNX's own operators, node by node, and comparison with their results.

ONNX's operators are imported on first evaluation: a worker only compares, and they would be a sixth of its imports.
"""

from typing import TYPE_CHECKING

from collage.reference.discrepancy import Discrepancy, discrepancy_of, relative_error
from collage_core.late_names import late_names

if TYPE_CHECKING:
    from collage.reference.evaluator import Evaluation, Fallback, NodeEvaluator, evaluate

__all__ = [
    "Discrepancy",
    "Evaluation",
    "Fallback",
    "NodeEvaluator",
    "discrepancy_of",
    "evaluate",
    "relative_error",
]

__getattr__ = late_names(__name__, dict.fromkeys(("Evaluation", "Fallback", "NodeEvaluator", "evaluate"), "evaluator"))
