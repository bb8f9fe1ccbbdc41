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

from collage_core.search.constraints import advance
from collage_core.search.layered import continued, host_flags, state_key
from collage_core.search.prepared import Prepared

Prices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"

NO_PRICE: Final = 1 << 60
"""Price of what is not to be used. Three of them can be added."""
_MOST_EDGES: Final = 3_000_000
"""A graph of more than these is not built; of these, its arrays take 70 MB."""


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

    Attributes:
        states: Number of states.
    """

    def __init__(self, edges: list[tuple[int, int, int]], layers: list[int], last: int | None, roles: int) -> None:
        table = np.array(edges, dtype=np.int32).reshape(-1, 3)
        layer_of = np.array(layers, dtype=np.int32)
        self.states = len(layers)
        self._last, self._roles = last, roles
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
        """Find what the cheapest plan costs, and the roles that cheapest plans use.

        Args:
            prices: Of each role, `NO_PRICE` or more if it is not to be used; shape (roles).

        Returns:
            The cost, `NO_PRICE` if there is no plan, and for each role the cost of the cheapest plan that uses it.
        """
        through = np.full(self._roles, NO_PRICE)
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
        self._roles = len(set(prepared.roles))
        shapes = {role: shape for role, shape in zip(prepared.roles, prepared.shapes, strict=True) if shape is not None}
        self._moves: list[list[tuple[int, int, Any]]] = [[] for _ in range(problem.node_count)]
        for role in sorted(roles & shapes.keys()):
            kernels = shapes[role].kernels
            low = (kernels & -kernels).bit_length() - 1
            self._moves[low].append((kernels >> low, role, shapes[role]))

    def graph(self, max_states: int) -> StateGraph | None:
        """Return the graph; None if it is too large."""
        start = 0
        while self._host[start]:
            start += 1
        numbers: list[dict[object, int]] = [{} for _ in range(self._count + 1)]
        states: list[list[tuple[int, int, Any]]] = [[] for _ in range(self._count + 1)]
        numbers[start][state_key(0, (), ())] = 0
        states[start].append((0, 0, ()))
        layer_of = [start]
        edges: list[tuple[int, int, int]] = []
        host_nodes = ((1 << self._count) - 1) & ~self._needs
        for low in range(start, self._count):
            for number, covered, pairs in states[low]:
                for kernels, role, shape in self._moves[low]:
                    if kernels & covered:
                        continue
                    now = covered | kernels
                    after: Any = ()
                    if pairs or shape.tangled:
                        uncovered = self._needs & ~((1 << low) - 1 | now << low) | host_nodes
                        if (after := advance(pairs, shape, uncovered)) is None:
                            continue
                    layer, now = continued(low, now, self._host)
                    key = state_key(now, after, ())
                    if (there := numbers[layer].get(key)) is None:
                        there = numbers[layer][key] = len(layer_of)
                        layer_of.append(layer)
                        states[layer].append((there, now, after))
                    edges.append((number, there, role))
            states[low], numbers[low] = [], {}
            if len(layer_of) > max_states or len(edges) > _MOST_EDGES:
                return None
        last = next(iter(numbers[self._count].values()), None)
        return StateGraph(edges, layer_of, last, self._roles)
