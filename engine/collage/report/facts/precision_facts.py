"""What a kernel of lower precision does to the model's outputs, as the record keeps it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionFacts:
    """The precision of one kernel's products.

    Attributes:
        products: Number of its products whose precision was decided.
        int8: Names of those in 8-bit integers.
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
