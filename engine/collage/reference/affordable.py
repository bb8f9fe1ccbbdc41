"""Follow the reference with perturbed operands as long as time and memory allow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from collage.reference.conditioning import Conditioning
from collage.reference.perturbed import PerturbedRun

if TYPE_CHECKING:
    from collage.reference.evaluator import NodeEvaluator

SHARE: Final = 0.6
"""Share of the time limit after which the values themselves are all that is computed."""
_TIMES: Final = 2.0
"""How often a node is evaluated again, at most: with perturbed operands, and with what could be decided otherwise."""
_ELEMENT_S: Final = 1.5e-7
"""Seconds for each element that is perturbed, compared and summarised, roughly; measured on a core of 2.5 GHz."""


class AffordableRun:
    """The perturbed run of a model, which is given up for good once it would keep the values from being computed.

    Args:
        graph: Graph of the model.
        evaluator: Computes nodes.
        deadline_s: Time limit of the whole evaluation, which begins now; None for none.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        graph: ir.Graph,
        evaluator: NodeEvaluator,
        deadline_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._ends = math.inf if deadline_s is None else clock() + SHARE * deadline_s
        self._run: PerturbedRun | None = PerturbedRun(graph, evaluator.until(self._ends))

    def follow(self, node: ir.Node, scope: Mapping[ir.Value, Any], results: Sequence[Any], took_s: float) -> None:
        """Evaluate a node after the reference did, unless time or memory are short.

        Args:
            node: The node.
            scope: The reference's values of all that the node reads.
            results: The reference's results.
            took_s: Seconds that the reference took.
        """
        if self._run is None:
            return
        values = [*(scope[value] for value in node.inputs if value is not None), *results]
        elements = sum(value.size for value in values if isinstance(value, np.ndarray))
        if self._clock() + _TIMES * took_s + _ELEMENT_S * elements > self._ends:
            self._run = None
            return
        try:
            self._run.follow(node, scope, results)
        except (MemoryError, TimeoutError):  # the values themselves matter more
            self._run = None

    def conditioning(self, value: ir.Value, right: Any) -> Conditioning | None:
        """Return what rounding does to a value of the reference; None if it is no tensor, or nobody knows."""
        try:
            return None if self._run is None else self._run.conditioning(value, right)
        except MemoryError:
            self._run = None
            return None

    def forget(self, value: ir.Value) -> None:
        """Drop what is known of a value."""
        if self._run is not None:
            self._run.forget(value)

    def given_up(self) -> bool:
        """Drop everything, and return whether there was anything."""
        run, self._run = self._run, None
        return run is not None
