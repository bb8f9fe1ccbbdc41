"""Solve the same problem as an integer program with HiGHS: an independent optimum and a checkable bound.

Set partitioning: each node that needs a kernel is in exactly one chosen candidate. A candidate implies its target,
and targets that do not mix are not chosen together. Cycles are cut off lazily: kernels that depend on each other in
a cycle are never all chosen. This is sound and terminates, as there are finitely many cycles; on real graphs there
are hardly any. With several devices, a value is copied from the device that computes it to another as soon as one
chosen candidate there reads it: a column for each value and pair of devices, at the cost of the copy.

HiGHS (Q. Huangfu and J. A. J. Hall, "Parallelizing the dual revised simplex method", 2018) comes with SciPy. It is
optional: `pip install collage-core[ilp]`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
from collections.abc import Iterable
from typing import Any

from collage_core.contract.cost import INVALID, Unmeasured
from collage_core.errors import NoCoverError, SearchError, SolverMissingError
from collage_core.ir.graph.masks import union_of
from collage_core.search.copy_model import MAKES, NOBODY, READS, CopyModel, Traffic
from collage_core.search.costs import CostSource, ask
from collage_core.search.exact import Allow
from collage_core.search.order import execution_order
from collage_core.search.prepared import Prepared, Shape, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem, bits

_ROUNDS = 1000
TOLERANCE = 1e-6
"""Relative tolerance below which two costs are equal to a solver that computes in doubles."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Result of the solver.

    Attributes:
        candidates: A plan of least cost, in execution order; any of several.
        total_us: Its cost, including every target's dispatch and every copy between devices.
        bound_us: Lower bound on the cost of every legal plan of the candidates with a cost.
        cuts: Number of cycles that had to be cut off.
        variables: Number of candidates in the program: the cheapest of equal ones.
        solver: Name and version.
    """

    candidates: tuple[SearchCandidate, ...]
    total_us: float
    bound_us: float
    cuts: int
    variables: int
    solver: str

    def proves(self, total_us: float) -> bool:
        """Return whether the bound proves a plan of this cost optimal, within the solver's tolerance."""
        return total_us <= self.bound_us + TOLERANCE * max(1.0, abs(self.bound_us))


def is_available() -> bool:
    """Return whether the solver is installed."""
    return importlib.util.find_spec("scipy") is not None


def check_available() -> None:
    """Check that the solver is installed; the error says how to install it.

    Raises:
        SolverMissingError: If it is not.
    """
    if not is_available():
        raise SolverMissingError("the integer program", "scipy", "collage-core[ilp]")


def solve(
    problem: SearchProblem | Prepared, costs: CostSource, *, allow: Allow | None = None, limit_s: float = 60.0
) -> Certificate:
    """Solve a problem to proven optimality.

    Args:
        problem: The problem, prepared or not.
        costs: Source of costs; unmeasured candidates are excluded.
        allow: Decides which candidates may be used; all if absent.
        limit_s: Time limit of each call of the solver, in seconds.

    Raises:
        SolverMissingError: If SciPy is not installed.
        NoCoverError: If no plan covers every node.
        SearchError: If the solver gave up, or a candidate is not convex.
        ValueError: If a cost is NaN or negative.
    """
    check_available()
    return _Program(prepare(problem), costs, allow).solve(limit_s)


@dataclasses.dataclass(frozen=True, slots=True)
class _Variable:
    candidate: SearchCandidate
    shape: Shape
    traffic: Traffic | None
    price_us: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Copy:
    """A copy that may become necessary.

    Attributes:
        cost_us: Cost of the copy; `INVALID` if it is impossible.
        makers: Variables that compute the value on the source; None if the caller provides it there.
        readers: Groups of mutually exclusive variables; each variable, if chosen, makes the copy necessary.
        always: Whether the copy is necessary regardless of the readers.
    """

    cost_us: float
    makers: list[int] | None
    readers: list[list[int]]
    always: bool


class _Program:
    """Integer program over candidates, targets and copies.

    Columns are candidates, targets and copies; rows are nodes, pairs of targets, their candidates, cycles and
    copies.
    """

    def __init__(self, prepared: Prepared, costs: CostSource, allow: Allow | None) -> None:
        problem = prepared.problem
        answers = ask(costs, problem.candidates)
        self._targets = {target.name: target for target in problem.targets}
        self._needs = problem.needs_kernel
        cheapest: dict[tuple[str, Shape, Traffic | None], _Variable] = {}
        for index, candidate in enumerate(problem.candidates):
            shape, traffic, cost = prepared.shapes[index], prepared.traffic[index], answers[candidate]
            if shape is None or isinstance(cost, Unmeasured) or cost == INVALID:
                continue
            if allow is not None and not allow(candidate):
                continue
            price_us = cost + self._targets[candidate.target].dispatch_us
            known = cheapest.get((candidate.target, shape, traffic))
            if known is None or price_us < known.price_us:
                cheapest[candidate.target, shape, traffic] = _Variable(candidate, shape, traffic, price_us)
        self._variables = list(cheapest.values())
        self._names = sorted({variable.candidate.target for variable in self._variables})
        self._circles: list[list[int]] = []
        self._copy_model = prepared.copies
        self._copies = [] if self._copy_model is None else _copies(problem, self._copy_model, self._variables)

    def solve(self, limit_s: float) -> Certificate:
        missing = self._needs & ~union_of(variable.shape.kernels for variable in self._variables)
        if missing:
            raise NoCoverError(tuple(bits(missing)))
        for _ in range(_ROUNDS):
            chosen, bound_us = self._relaxed(limit_s)
            shapes = [self._variables[index].shape for index in chosen]
            try:
                order = execution_order(shapes)
            except SearchError:
                self._circles.append([chosen[at] for at in _circle(shapes)])
                continue
            return Certificate(
                candidates=tuple(self._variables[chosen[at]].candidate for at in order),
                total_us=sum(self._variables[index].price_us for index in chosen) + self._copies_us(chosen),
                bound_us=bound_us,
                cuts=len(self._circles),
                variables=len(self._variables),
                solver=_solver(),
            )
        raise SearchError(f"the integer program still had circles after {_ROUNDS} cuts")

    def _copies_us(self, chosen: list[int]) -> float:
        if self._copy_model is None:
            return 0.0
        copies = self._copy_model.copies_of(self._variables[index].traffic for index in chosen)
        return sum(copy.cost_us for copy in copies)

    def _relaxed(self, limit_s: float) -> tuple[list[int], float]:
        """Solve the program with the cycle cuts found so far; return the candidates chosen, and the bound."""
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp

        if not self._needs:
            return [], self._copies_us([])
        first_copy = len(self._variables) + len(self._names)
        columns = first_copy + len(self._copies)
        entries: list[tuple[int, int, float]] = []
        low: list[float] = []
        high: list[float] = []

        def row(parts: list[tuple[int, float]], least: float, most: float) -> None:
            entries.extend((len(low), column, factor) for column, factor in parts)
            low.append(least)
            high.append(most)

        holders: dict[int, list[int]] = {node: [] for node in bits(self._needs)}
        for index, variable in enumerate(self._variables):
            for node in bits(variable.shape.kernels):
                holders[node].append(index)
        for indices in holders.values():
            row([(index, 1.0) for index in indices], 1.0, 1.0)
        column_of = {name: len(self._variables) + at for at, name in enumerate(self._names)}
        for one, other in itertools.combinations(self._names, 2):
            if not self._targets[one].mixes_with(self._targets[other]):
                row([(column_of[one], 1.0), (column_of[other], 1.0)], 0.0, 1.0)
        for index, variable in enumerate(self._variables):
            row([(index, 1.0), (column_of[variable.candidate.target], -1.0)], -1.0, 0.0)
        for circle in self._circles:
            row([(index, 1.0) for index in circle], 0.0, len(circle) - 1.0)
        for column, copy in enumerate(self._copies, first_copy):
            # copied >= made there + read here - 1
            made = [(index, 1.0) for index in copy.makers or ()]
            given = 0.0 if copy.makers is None else 1.0
            for group in copy.readers:
                row([*made, *((index, 1.0) for index in group), (column, -1.0)], -np.inf, given)
            if copy.always:
                row([*made, (column, -1.0)], -np.inf, given - 1.0)
        rows, at, factors = zip(*entries, strict=True)
        from scipy.sparse import csr_array

        matrix = csr_array((factors, (rows, at)), shape=(len(low), columns))
        result: Any = milp(
            np.array(
                [variable.price_us for variable in self._variables]
                + [0.0] * len(self._names)
                + [0.0 if copy.cost_us == INVALID else copy.cost_us for copy in self._copies]
            ),
            constraints=LinearConstraint(matrix, low, high),
            integrality=np.ones(columns),
            bounds=Bounds(0, [1.0] * first_copy + [0.0 if copy.cost_us == INVALID else 1.0 for copy in self._copies]),
            options={"mip_rel_gap": 0.0, "time_limit": limit_s},
        )
        if result.status == 2:
            raise NoCoverError(tuple(bits(self._needs)), stuck=True)
        if result.x is None or result.status != 0:
            raise SearchError(f"the integer program was not solved: {result.message}")
        chosen = [index for index in range(len(self._variables)) if result.x[index] > 0.5]
        return chosen, float(result.mip_dual_bound)


def _copies(problem: SearchProblem, copy_model: CopyModel, variables: list[_Variable]) -> list[_Copy]:
    """List every copy with a cost, or impossible, that some choice makes necessary."""
    assert problem.copies is not None
    makers: dict[tuple[int, int], list[int]] = {}  # variables by value and device
    readers: dict[tuple[int, int], list[int]] = {}
    for index, variable in enumerate(variables):
        assert variable.traffic is not None
        for value, role in variable.traffic.parts:
            if role == MAKES:
                makers.setdefault((value, variable.traffic.device), []).append(index)
            elif role == READS:
                readers.setdefault((value, variable.traffic.device), []).append(index)
    found = []
    every = range(len(copy_model.devices))
    for value, facts in enumerate(problem.copies.values):
        given = copy_model.start_of(value)
        for source, destination in itertools.permutations(every, 2):
            cost_us = copy_model.cost_us(value, source, destination)
            if not cost_us or (source != given if given != NOBODY else (value, source) not in makers):
                continue
            groups = _groups(readers.get((value, destination), ()), facts.readers & problem.needs_kernel, variables)
            always = facts.ends_on == copy_model.devices[destination]
            if groups or always:
                made = makers[value, source] if given == NOBODY else None
                found.append(_Copy(cost_us, made, groups, always))
    return found


def _groups(indices: Iterable[int], readers: int, variables: list[_Variable]) -> list[list[int]]:
    """Group variables that cover the same reader, at most one of which is chosen; others stay alone."""
    by_reader: dict[int, list[int]] = {}
    alone = []
    for index in indices:
        held = variables[index].shape.kernels & readers
        if not held:
            alone.append([index])
        for node in bits(held):
            by_reader.setdefault(node, []).append(index)
    return [*by_reader.values(), *alone]


def _circle(shapes: list[Shape]) -> list[int]:
    """Return the positions of a small set of shapes that depend on each other in a cycle."""
    after = [
        [b for b in range(len(shapes)) if b != a and shapes[b].before & shapes[a].kernels] for a in range(len(shapes))
    ]
    best: list[int] = []
    for start in range(len(shapes)):
        came: dict[int, int] = {}
        front = [start]
        while front and start not in came:
            beyond = []
            for one in front:
                for other in after[one]:
                    if other not in came:
                        came[other] = one
                        beyond.append(other)
            front = beyond
        if start in came:
            path = [start]
            while came[path[-1]] != start:
                path.append(came[path[-1]])
            if not best or len(path) < len(best):
                best = path
    return best


def _solver() -> str:
    import scipy

    return f"HiGHS of SciPy {scipy.__version__}"
