"""What lower precision does to the model's outputs, as the record keeps it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionFacts:
    """The precision of one kernel's products.

    Attributes:
        products: Number of its products whose precision was decided.
        int8: Names of those in 8-bit integers.
        weights_alone: Whether only the weights of these are.
        error: Error that it is expected to add to the outputs, relative to their scale.
        share: Its share of the square of the plan's expected error.
        stopped: Names of the products that would be in 8-bit integers next, if the bound allowed it.
        stopped_error: Error of the plan that is expected then.
    """

    products: int
    int8: tuple[str, ...]
    error: float
    share: float
    stopped: tuple[str, ...] = ()
    stopped_error: float = 0.0
    weights_alone: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricFacts:
    """What a plan reaches in a metric of the user's, of which more is better.

    Attributes:
        name: Name of the metric.
        max_drop: By how much less of it is allowed than the model reaches in its own types.
        of_model: What the model reaches in its own types.
        of_plan: What the plan reaches.
        samples: Number of the samples.
        held_out: Whether these samples decided nothing.
    """

    name: str
    max_drop: float
    of_model: float
    of_plan: float
    samples: int
    held_out: bool

    @property
    def drop(self) -> float:
        """By how much less the plan reaches; negative if it is more."""
        return self.of_model - self.of_plan
