"""The exact search, repeated over one problem with other costs each time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import numpy as np

from collage_core.contract.cost import Cost
from collage_core.search.costs import PICOSECONDS_PER_US
from collage_core.search.exact import ExactSearch, SearchLimits, SearchResult
from collage_core.search.normal import Positions, Vector
from collage_core.search.prepared import Prepared
from collage_core.search.problem import compatible_sets
from collage_core.search.state_graph import NO_PRICE, StateGraph

_MOST_STATES: Final = 200_000
"""A problem of more states than these is searched anew each time."""


class RepeatedSearch:
    """Finds what `ExactSearch` finds, faster when it is asked again.

    From the second search on, only those candidates are left to `ExactSearch` that a cheapest plan has: it decides
    between plans that cost the same. It gets all that are usable where the problem has too many states or moves to keep
    them, where values are copied between devices, and where no plan is found, to say which nodes are left.

    Args:
        prepared: The problem.
        usable: For each candidate, whether it may be used.
        limits: Limits of each search; not more than `max_states` are kept.
    """

    def __init__(self, prepared: Prepared, usable: Sequence[bool], limits: SearchLimits | None = None) -> None:
        self._prepared, self._limits = prepared, limits or SearchLimits()
        problem = prepared.problem
        self._roles = np.array(prepared.roles, dtype=np.intp)
        dispatch_us = {target.name: target.dispatch_us for target in problem.targets}
        self._dispatch_us = np.array([dispatch_us[each.target] for each in problem.candidates], dtype=np.float64)
        self._usable = [index for index, is_usable in enumerate(usable) if is_usable]
        self._positions = self._mixable()
        self._searches = 0

    def run(self, costs_us: Vector) -> SearchResult:
        """Find the cheapest plan; see `ExactSearch.run`.

        Args:
            costs_us: Cost of each candidate, in the order of the problem's; infinite for what is not to be used.

        Raises:
            NoCoverError: If no plan covers every node.
            SearchError: If the limits were reached before any plan was found.
            ValueError: If a cost is NaN or negative.
        """
        if not (costs_us >= 0).all():
            raise ValueError("a cost is NaN or negative")
        costs: list[Cost] = costs_us.tolist()
        search = ExactSearch(self._prepared, costs, limits=self._limits)
        self._searches += 1
        graph = None if self._searches == 1 else self.graph  # building it takes as long as a search
        cheapest = None if graph is None else self._on_cheapest(graph, costs_us)
        return search.run(only=cheapest or self._usable)

    @functools.cached_property
    def graph(self) -> StateGraph | None:
        """The states that are kept; None if there are too many."""
        roles = {self._prepared.roles[index] for index in self._usable}
        return StateGraph.of(self._prepared, roles, min(_MOST_STATES, self._limits.max_states))

    def _mixable(self) -> list[Positions]:
        """Return the positions of the candidates of each set of targets that may share a plan."""
        problem = self._prepared.problem
        shaped = [
            (index, problem.candidates[index].target)
            for index in self._usable
            if self._prepared.shapes[index] is not None
        ]
        present = {target for _, target in shaped}
        sets = compatible_sets(target for target in problem.targets if target.name in present)
        return [np.array([index for index, target in shaped if target in names], dtype=np.intp) for names in sets]

    def _on_cheapest(self, graph: StateGraph, costs_us: Vector) -> set[int]:
        """Return the positions of candidates that the cheapest plans have; none if there is no plan."""
        rounded = np.rint((costs_us + self._dispatch_us) * PICOSECONDS_PER_US)
        prices = np.minimum(rounded, NO_PRICE).astype(np.int64)
        least = NO_PRICE
        found: set[int] = set()
        for positions in self._positions:
            roles = self._roles[positions]
            of_roles = np.full(self._roles.max(initial=-1) + 1, NO_PRICE)
            np.minimum.at(of_roles, roles, prices[positions])
            total, through = graph.best(of_roles)
            if total > least or total >= NO_PRICE:
                continue
            if total < least:
                least = total
                found.clear()
            chosen = (through[roles] == total) & (prices[positions] == of_roles[roles])
            found.update(positions[chosen].tolist())
        return found
