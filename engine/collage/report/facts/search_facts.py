"""Facts about how a plan was searched."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

PHASES = ("prepare", "candidates", "measure", "search", "refine", "total")
"""Phases that every search has, in the order in which reports list them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BestSoFar:
    """The best plan at one time of a search.

    Attributes:
        seconds: Time since the search began.
        candidates: Candidates that had been measured, or looked up, by then.
        predicted_ms: Predicted time of the best plan of them.
    """

    seconds: float
    candidates: int
    predicted_ms: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleSetFacts:
    """Targets that may share a plan, where not all may.

    Attributes:
        targets: Names of the targets; the set is maximal.
        predicted_ms: Predicted time of their best plan; None if they cover no plan.
        used: Names of the targets that plan uses.
    """

    targets: tuple[str, ...]
    predicted_ms: float | None
    used: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchFacts:
    """How the plan was found.

    Attributes:
        method: Name of the search.
        exact: Whether no cheaper plan exists among the candidates, at the recorded costs.
        gap_us: Upper bound of the cost by which a cheaper plan could exist; 0 if exact.
        candidates: Candidates proposed.
        distinct_candidates: Structurally distinct candidates per target.
        measured: Candidates measured in this run.
        cache_hits: Candidates whose costs came from the tuning database.
        left_out: What the preset's bounds and toolchains' own rules left out, in words; empty if nothing.
        rounds: Rounds of search and re-measurement.
        seconds: Wall-clock time by phase: prepare, candidates, measure, search, refine, total.
        compatible_sets: Every maximal set of compatible targets, where some targets exclude each other.
        bound_us: What every plan of the candidates costs at least, at the recorded costs; None if nothing is known.
        unmeasured: Structurally distinct candidates per target that have no cost.
        history: The best plan over time, whenever it changed.
    """

    method: str
    exact: bool
    gap_us: float
    candidates: int
    distinct_candidates: int
    measured: int
    cache_hits: int
    left_out: str = ""
    rounds: int = 1
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    compatible_sets: tuple[CompatibleSetFacts, ...] = ()
    bound_us: float | None = None
    unmeasured: int = 0
    history: tuple[BestSoFar, ...] = ()

    @property
    def took_place(self) -> bool:
        """Whether anything was searched; otherwise the user gave the plan."""
        return self.rounds > 0
