"""What a plan of lower precision has to keep to: a largest error, and perhaps a largest drop of a metric."""

from __future__ import annotations

import math
from typing import Final

from collage.precision.plans.drops import Drops
from collage.report.figures import counted
from collage_core.candidates.plan import Plan

MARGIN: Final = 0.85
"""Share of what is allowed that a plan may use up on the samples that decide: on others it may be further off.

A ConvNeXt whose error was 0.017 at most on four samples had 0.0149, 0.0175 and 0.0202 on three others.
"""
_LESS: Final = 0.5
"""Factor from the error of a plan that drops too far to the next that is tried, if none is known that does not."""


class Bound:
    """Says which plans keep to what is allowed, and learns which error a metric bears.

    A metric is taken to drop the further the larger the error is. The error to look for is halved until a plan's drop
    is allowed, and is then between those of the best plan that is and of the first that is not.

    Args:
        allowed: Largest error of an output that is allowed.
        drops: How far plans drop in a metric; None if only their error counts.

    Attributes:
        error: Largest error that plans are looked for.
        refused: A sentence for each plan that drops too far.
    """

    def __init__(self, allowed: float, drops: Drops | None = None) -> None:
        self._drops = drops
        self._allowed = MARGIN * allowed
        self._good, self._bad = 0.0, math.inf
        self.error = self._allowed
        self.refused: list[str] = []

    def keeps(self, plan: Plan, error: float) -> bool:
        """Return whether a plan keeps to what is allowed.

        Args:
            plan: The plan.
            error: Largest error of its outputs on the calibration samples.

        Raises:
            PrecisionError: If a plan does not run on the labelled samples.
            MetricError: If the metric cannot be computed.
        """
        if error > self._allowed:
            return False
        if self._drops is None:
            return True
        metric = self._drops.metric
        drop = self._drops.drop(plan, held_out=False)
        kept = drop <= MARGIN * metric.max_drop
        if kept:
            self._good = max(self._good, error)
        else:
            self._bad = min(self._bad, error)
            form = counted(sum(len(kernel.sub_graph.int8) for kernel in plan.kernels), "product")
            self.refused.append(
                f"{plan.name} with {form} in int8 drops by {drop:.4g} in {metric.name}, and at most {MARGIN:g} of "
                f"{metric.max_drop:g} is used up where plans are chosen"
            )
        if math.isfinite(self._bad):
            self._good = min(self._good, self._bad)  # another target's, for which more is allowed than for all
            self.error = math.sqrt(self._good * self._bad) if self._good > 0 else _LESS * self._bad
        return kept
