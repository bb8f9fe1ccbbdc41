"""The plan of few kernels that may be as fast as the cheapest one.

What a plan of many kernels is predicted to take is a sum of many noisy numbers, the least of many such sums, and knows
nothing of what kernels leave to each other in the caches. So one of fewer kernels that is predicted to take a few
percent more is often as fast, or faster.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from collage_core.candidates.pool import CandidatePool
from collage_core.search import SearchResult

ALIKE: Final = 0.02
"""Relative difference up to which two mixed plans that cannot be told apart count as equally fast: two processes of one
plan differ by as much.
"""


def simple_plan(pool: CandidatePool, cheapest_us: float, price: float = ALIKE) -> SearchResult:
    """Return the plan of more than one kernel that is the cheapest if each kernel has a price besides.

    Kernels that a device captures have none, as they have no dispatch.

    Args:
        pool: The candidates.
        cheapest_us: What the cheapest plan is predicted to take, in microseconds.
        price: The price, as a share of that.

    Raises:
        NoCoverError: If no plan of more than one kernel covers the graph.
    """
    engine = dataclasses.replace(pool, dispatch_us=pool.dispatch_us + price * cheapest_us).engine()
    return engine.run(lambda chosen: chosen.nodes != pool.whole)
