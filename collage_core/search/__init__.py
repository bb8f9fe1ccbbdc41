"""The search for the least-cost partitioning, over a `CostSource`; it measures nothing itself."""

from collage_core.search.costs import CostSource, CostTable
from collage_core.search.exact import ExactSearch, SearchLimits, SearchResult, search
from collage_core.search.k_best import k_best
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import (
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    bits,
    compatible_sets,
)

__all__ = [
    "CostSource",
    "CostTable",
    "ExactSearch",
    "Prepared",
    "SearchCandidate",
    "SearchLimits",
    "SearchProblem",
    "SearchResult",
    "SearchTarget",
    "bits",
    "compatible_sets",
    "k_best",
    "prepare",
    "search",
]
