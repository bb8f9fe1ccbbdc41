"""Certify a plan's optimality with an integer program: an independent proof that no plan is cheaper."""

from __future__ import annotations

from collage.report import figures
from collage_core.candidates.pool import CandidatePool, PoolCosts
from collage_core.errors import SearchError
from collage_core.search import solve


def certified(pool: CandidatePool, total_us: float) -> str:
    """Certify the plan's optimality with an integer program and return a sentence for the record.

    Args:
        pool: The candidates with their costs.
        total_us: Cost of the plan that the search found, in microseconds, dispatch included.
    """
    try:
        found = solve(pool.problem(), PoolCosts(pool))
    except SearchError as error:
        return f"the integer program did not decide whether a cheaper plan exists: {error}"
    what = f"{found.solver}, {figures.counted(found.variables, 'candidate')} with a cost, {found.cuts} circles cut off"
    bound = figures.microseconds(found.bound_us)
    if found.proves(total_us):
        return f"certified by an integer program ({what}): at these costs no plan is cheaper than {bound} us"
    return (
        f"an integer program ({what}) found a plan of {figures.microseconds(found.total_us)} us, bound {bound} us, "
        f"where the search found {figures.microseconds(total_us)} us"
    )
