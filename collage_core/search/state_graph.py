"""The states of the exact search and the moves between them, built once and solved for many sets of costs.

Which states there are, and which move leads from one to another, follows from the graph and the candidates alone; costs
only decide which path is the shortest. So a search that is repeated with other costs builds them once. A solution is
then one pass forward and one backward over arrays, the layers in order: a shortest path in an acyclic graph (decision 4
of docs/design).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import numpy as np

from collage_core.ir.graph.masks import lowest_bit
from collage_core.search.constraints import Pairs, advance
from collage_core.search.layered import continued, host_flags, state_key
from collage_core.search.prepared import Prepared, Shape

Prices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Edge: TypeAlias = tuple[int, int, int]
"""Source state, target state and role of a move."""
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"

NO_PRICE: Final = 1 << 60
"""Price of what is not to be used. Three of them can be added."""
_MOST_EDGES: Final = 1_000_000
"""Maximum number of edges; with as many, the arrays take 31 MB, and building them 0.24 GB."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Grouped:
    """Edges of one layer, grouped by the state at one of their ends.

    Attributes:
        own: The states at that end, one for each group.
        starts: Where each group begins.
        other: State at the other end of each edge.
        role: Role of each edge.
    """

    own: _Numbers
    starts: _Numbers
    other: _Numbers
    role: _Numbers

    def least(self, at_other: Prices, prices: Prices) -> Prices:
        """Return the least sum of a price and what is known at the other end, for each group."""
        return np.minimum.reduceat(at_other[self.other] + prices[self.role], self.starts)


class StateGraph:
    """All partial plans that candidates of some roles make, as states, and the candidates between them, as edges.

    Args:
        edges: Its edges.
        layers: Layer of each state; the first state is the empty plan.
        last: The state in which everything is covered; None if none is.
        role_count: Number of roles, with those of no edge.

    Attributes:
        states: Number of states.
    """

    def __init__(self, edges: list[Edge], layers: list[int], last: int | None, role_count: int) -> None:
        table = np.array(edges, dtype=np.int32).reshape(-1, 3)
        layer_of = np.array(layers, dtype=np.int32)
        self.states = len(layers)
        self._last, self._role_count = last, role_count
        self._sources, self._ends, self._by = (np.ascontiguousarray(column) for column in table.T)
        self._forward = _grouped(table[:, 1], table[:, 0], table[:, 2], layer_of)
        self._backward = _grouped(table[:, 0], table[:, 1], table[:, 2], layer_of)[::-1]

    @classmethod
    def of(cls, prepared: Prepared, roles: Iterable[int], max_states: int) -> StateGraph | None:
        """Build the graph; None if it has too many states or edges, or if values are copied between devices.

        Args:
            prepared: The problem.
            roles: Roles of the candidates that may be used.
            max_states: Maximum number of states.
        """
        if prepared.copies is not None:
            return None  # what a copy costs depends on where values are: there is a state for each such case
        return _Building(prepared, frozenset(roles)).graph(max_states)

    def best(self, prices: Prices) -> tuple[int, Prices]:
        """Find the cost of the cheapest plan, and for each role the cost of the cheapest plan that uses it.

        Args:
            prices: Of each role, at most `NO_PRICE`, which is that of one that is not to be used; shape (roles).

        Returns:
            The cost, `NO_PRICE` if there is no plan; and the costs by role, shape (roles), `NO_PRICE` or more where
            no plan uses the role.
        """
        through = np.full(self._role_count, NO_PRICE)
        if self._last is None:
            return NO_PRICE, through
        so_far = np.full(self.states, NO_PRICE)
        so_far[0] = 0
        for edges in self._forward:
            so_far[edges.own] = np.minimum(edges.least(so_far, prices), NO_PRICE)
        to_go = np.full(self.states, NO_PRICE)
        to_go[self._last] = 0
        for edges in self._backward:
            to_go[edges.own] = np.minimum(edges.least(to_go, prices), NO_PRICE)
        np.minimum.at(through, self._by, so_far[self._sources] + prices[self._by] + to_go[self._ends])
        return int(so_far[self._last]), through


def _grouped(own: _Numbers, other: _Numbers, role: _Numbers, layer_of: _Numbers) -> list[_Grouped]:
    """Group edges by layer, then by the state at one end; the layers in order."""
    order = np.lexsort((own, layer_of[own]))
    own, other, role = own[order], other[order], role[order]
    layers = layer_of[own]
    found: list[_Grouped] = []
    for part in np.split(np.arange(len(own)), np.flatnonzero(np.diff(layers)) + 1) if len(own) else ():
        states, starts = np.unique(own[part], return_index=True)
        found.append(_Grouped(states, starts.astype(np.int32), other[part], role[part]))
    return found


class _Building:
    """Follows every move from every state, in the order of the layers."""

    def __init__(self, prepared: Prepared, roles: frozenset[int]) -> None:
        problem = prepared.problem
        self._count, self._needs = problem.node_count, problem.needs_kernel
        self._host = host_flags(problem.node_count, problem.needs_kernel)
        self._host_nodes = ((1 << self._count) - 1) & ~self._needs
        self._role_count = len(set(prepared.roles))
        shapes = {role: shape for role, shape in zip(prepared.roles, prepared.shapes, strict=True) if shape is not None}
        self._moves: list[list[tuple[int, int, Shape]]] = [[] for _ in range(problem.node_count)]
        for role in sorted(roles & shapes.keys()):
            low = lowest_bit(shapes[role].kernels)
            self._moves[low].append((shapes[role].kernels >> low, role, shapes[role]))
        self._numbers: list[dict[object, int]] = [{} for _ in range(self._count + 1)]
        self._states: list[list[tuple[int, int, Pairs]]] = [[] for _ in range(self._count + 1)]
        self._layer_of: list[int] = []
        self._edges: list[Edge] = []

    def graph(self, max_states: int) -> StateGraph | None:
        """Return the graph; None if it is too large."""
        start = 0
        while self._host[start]:
            start += 1
        self._number(start, 0, ())
        for low in range(start, self._count):
            for number, covered, pairs in self._states[low]:
                self._follow(low, number, covered, pairs)
                if len(self._layer_of) > max_states or len(self._edges) > _MOST_EDGES:
                    return None
            self._states[low], self._numbers[low] = [], {}
        last = next(iter(self._numbers[self._count].values()), None)
        return StateGraph(self._edges, self._layer_of, last, self._role_count)

    def _follow(self, low: int, number: int, covered: int, pairs: Pairs) -> None:
        """Add the moves from a state, and the states that they lead to."""
        for kernels, role, shape in self._moves[low]:
            if kernels & covered:
                continue
            now = covered | kernels
            after: Pairs | None = ()
            if pairs or shape.tangled:
                uncovered = self._needs & ~((1 << low) - 1 | now << low) | self._host_nodes
                after = advance(pairs, shape, uncovered)
            if after is not None:
                self._edges.append((number, self._number(*continued(low, now, self._host), after), role))

    def _number(self, layer: int, covered: int, pairs: Pairs) -> int:
        """Return the number of a state; a new one if it was not met before."""
        key = state_key(covered, pairs, ())
        number = self._numbers[layer].get(key)
        if number is None:
            number = self._numbers[layer][key] = len(self._layer_of)
            self._layer_of.append(layer)
            self._states[layer].append((number, covered, pairs))
        return number
