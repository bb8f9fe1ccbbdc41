"""The numeric reference: ONNX's own operators, node by node, and how to compare with them.

ONNX's operators are imported when something is first evaluated: a worker only compares, and they are a sixth of what it
would import.
"""

from typing import TYPE_CHECKING

from collage.reference.discrepancy import Discrepancy, compare, relative_error
from collage_core.late_names import late_names

if TYPE_CHECKING:
    from collage.reference.evaluator import Evaluation, Fallback, NodeEvaluator, evaluate

__all__ = [
    "Discrepancy",
    "Evaluation",
    "Fallback",
    "NodeEvaluator",
    "compare",
    "evaluate",
    "relative_error",
]

__getattr__ = late_names(__name__, dict.fromkeys(("Evaluation", "Fallback", "NodeEvaluator", "evaluate"), "evaluator"))
