"""The search for the least-cost partitioning, over a `CostSource`; it measures nothing itself."""

from collage_core.search.beliefs import GUESSED, KERNEL_US, NOISE, PROFILED, Beliefs, Doubt, Joint, TargetBelief
from collage_core.search.bounded import BoundedResult, bounded_search
from collage_core.search.copies import CopyCosts, CopyTable, DeviceCopies, DeviceCopy, SharedValue
from collage_core.search.copy_model import copies_of
from collage_core.search.costs import CostSource, CostTable
from collage_core.search.exact import ExactSearch, SearchLimits, SearchResult, search
from collage_core.search.integer_program import Certificate, check_available, solve
from collage_core.search.lazy import Estimates, FromNothing, LazyResult, LazyStep, lazy_search
from collage_core.search.learnt_bound import LearntResult, LearntRun, learnt_bound_search
from collage_core.search.normal import Matrix, Vector
from collage_core.search.placement import Crossings, place
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import (
    SearchCandidate,
    SearchProblem,
    SearchTarget,
    bits,
    compatible_sets,
)

__all__ = [
    "GUESSED",
    "KERNEL_US",
    "NOISE",
    "PROFILED",
    "Beliefs",
    "BoundedResult",
    "Certificate",
    "CopyCosts",
    "CopyTable",
    "CostSource",
    "CostTable",
    "Crossings",
    "DeviceCopies",
    "DeviceCopy",
    "Doubt",
    "Estimates",
    "ExactSearch",
    "FromNothing",
    "Joint",
    "LazyResult",
    "LazyStep",
    "LearntResult",
    "LearntRun",
    "Matrix",
    "Prepared",
    "SearchCandidate",
    "SearchLimits",
    "SearchProblem",
    "SearchResult",
    "SearchTarget",
    "SharedValue",
    "TargetBelief",
    "Vector",
    "bits",
    "bounded_search",
    "check_available",
    "compatible_sets",
    "copies_of",
    "lazy_search",
    "learnt_bound_search",
    "place",
    "prepare",
    "search",
    "solve",
]
