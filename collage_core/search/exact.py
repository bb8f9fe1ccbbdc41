"""Find the least-cost acyclic cover, exactly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

from collage_core.contract.cost import INVALID, Cost, Unmeasured
from collage_core.errors import NoCoverError, SearchError
from collage_core.ir.graph.masks import lowest_bit, mask_of, union_of
from collage_core.search.bounds import node_prices
from collage_core.search.constraints import advance
from collage_core.search.copies import DeviceCopy
from collage_core.search.costs import PICOSECONDS_PER_US, CostSource, ask
from collage_core.search.layered import KERNEL_BITS, Key, Move, Path, Step, Sweep, state_key
from collage_core.search.order import execution_order
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem, bits, compatible_sets

Allow = Callable[[SearchCandidate], bool]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """Limits at which the search gives up exactness.

    Attributes:
        max_states: Maximum number of states expanded in one exact sweep.
        plain_states: Number of states up to which the sweep uses no bound; most models need no more.
        widths: States per layer of the inexact sweeps that provide the bound, tried in turn until one succeeds.
    """

    max_states: int = 1_000_000
    plain_states: int = 30_000
    widths: tuple[int, ...] = (32, 256, 2048)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A plan and its proven properties.

    Attributes:
        candidates: The chosen candidates, in execution order.
        costs_us: Cost of each, without the target's dispatch.
        total_us: Their sum, including every target's dispatch and every copy between devices.
        exact: Whether no legal plan of the allowed candidates is cheaper.
        gap_us: Upper bound on how much cheaper a legal plan could be; 0 if exact.
        states: States expanded; equal plans are equal results, whatever it took to find them.
        method: `"exact"`, or `"beam"` if a limit was reached.
        unmeasured: Allowed candidates left out because their cost is unknown.
        copies: The copies between devices, by value.
    """

    candidates: tuple[SearchCandidate, ...]
    costs_us: tuple[float, ...]
    total_us: float
    exact: bool
    gap_us: float
    states: int = dataclasses.field(compare=False)
    method: str
    unmeasured: int
    copies: tuple[DeviceCopy, ...] = ()

    @property
    def copies_us(self) -> float:
        """Total cost of its copies between devices."""
        return math.fsum(copy.cost_us for copy in self.copies)

    @property
    def targets(self) -> frozenset[str]:
        """Names of the targets used."""
        return frozenset(candidate.target for candidate in self.candidates)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    moves: tuple[Move, ...]
    copies: tuple[DeviceCopy, ...]
    states: int
    bound: int | None
    """Lower bound in picoseconds if the plan is not proven best."""

    @property
    def value(self) -> int:
        due = sum(round(copy.cost_us * PICOSECONDS_PER_US) for copy in self.copies)
        return sum(move.value for move in self.moves) + (due << KERNEL_BITS)

    def rank(self) -> tuple[int, int, list[int]]:
        toolchains = union_of(move.toolchain for move in self.moves)
        return self.value, toolchains.bit_count(), [move.order for move in self.moves]


class ExactSearch:
    """A problem with its costs, to be searched under several restrictions.

    A source is queried once for every candidate, at construction.

    Args:
        problem: The problem, prepared or not.
        costs: Source of the costs, or the costs themselves in the order of the candidates.
        limits: Limits at which exactness is given up.
        step: Replaced in tests only, see `Sweep`.
        key: Replaced in tests only, see `Sweep`.

    Raises:
        SearchError: If a candidate is not convex.
        ValueError: If a cost is NaN or negative.
    """

    def __init__(
        self,
        problem: SearchProblem | Prepared,
        costs: CostSource | Sequence[Cost | Unmeasured],
        *,
        limits: SearchLimits | None = None,
        step: Step = advance,
        key: Key = state_key,
    ) -> None:
        self._prepared = prepare(problem)
        self._problem = self._prepared.problem
        self._limits = limits or SearchLimits()
        self._step = step
        self._key = key
        self._targets = {target.name: target for target in self._problem.targets}
        if isinstance(costs, Sequence):
            self._costs = list(costs)
        else:
            answers = ask(costs, self._problem.candidates)
            self._costs = [answers[candidate] for candidate in self._problem.candidates]
        toolchains = sorted({target.toolchain for target in self._problem.targets})
        self._bits = {t.name: 1 << toolchains.index(t.toolchain) for t in self._problem.targets}

    def run(self, allow: Allow | None = None, *, only: Iterable[int] | None = None) -> SearchResult:
        """Find the cheapest plan of the allowed candidates.

        Ties are broken by fewer kernels, then fewer toolchains, then the canonical order of candidates
        (rank, toolchain, target, label, nodes, key), compared kernel by kernel from the lowest node on.

        Args:
            allow: Decides which candidates may be used; all if absent.
            only: Positions of the candidates that are looked at; all if absent.

        Raises:
            NoCoverError: If no plan covers every node.
            SearchError: If the limits were reached before any plan was found.
        """
        allowed = self._allowed(allow, only)
        costs = self._costs
        unmeasured = [index for index in allowed if isinstance(costs[index], Unmeasured)]
        priced = [
            (index, self._price(index, cost))
            for index in allowed
            if not isinstance(cost := costs[index], Unmeasured) and cost != INVALID
        ]
        found, states = self._best(priced)
        bound = found.bound
        if unmeasured:  # whatever they cost, it is at least their dispatch
            optimistic = [*priced, *((index, self._price(index, 0.0)) for index in unmeasured)]
            bound = sum(node_prices((self._kernels(index), price) for index, price in optimistic).values())
        return self._result(found, states, bound, len(unmeasured))

    def _allowed(self, allow: Allow | None, only: Iterable[int] | None) -> list[int]:
        """Return the positions of allowed candidates that cover anything."""
        shapes, candidates = self._prepared.shapes, self._problem.candidates
        looked_at = range(len(shapes)) if only is None else sorted(only)
        return [
            index for index in looked_at if shapes[index] is not None and (allow is None or allow(candidates[index]))
        ]

    def _kernels(self, index: int) -> int:
        shape = self._prepared.shapes[index]
        assert shape is not None
        return shape.kernels

    def _price(self, index: int, cost_us: float) -> int:
        dispatch_us = self._targets[self._problem.candidates[index].target].dispatch_us
        return round((cost_us + dispatch_us) * PICOSECONDS_PER_US)

    def _move(self, index: int, price: int) -> Move:
        shape = self._prepared.shapes[index]
        assert shape is not None
        low = lowest_bit(shape.kernels)
        return Move(
            index=index,
            shape=shape,
            value=(price << KERNEL_BITS) + 1,
            toolchain=self._bits[self._problem.candidates[index].target],
            order=self._prepared.order[index],
            low=low,
            kernels=shape.kernels >> low,
            traffic=self._prepared.traffic[index],
        )

    def _undominated(self, priced: Iterable[tuple[int, int]]) -> list[Move]:
        """Return moves, cheapest first, one for each role and toolchain that nothing of that role undercuts.

        This is sound because the role alone decides which moves can be combined, and at what cost. Of ties within a
        toolchain the first in canonical order is kept.
        """
        roles = self._prepared.roles
        cheapest: dict[int, int] = {}
        usable = list(priced)
        for index, price in usable:
            cheapest[roles[index]] = min(price, cheapest.get(roles[index], price))
        moves = [self._move(index, price) for index, price in usable if price == cheapest[roles[index]]]
        moves.sort(key=lambda move: (move.value, move.order))
        kept: dict[tuple[int, int], Move] = {}
        for move in moves:
            kept.setdefault((roles[move.index], move.toolchain), move)
        return list(kept.values())

    def _mixable(self, priced: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Group candidates by maximal sets of targets that may share a plan."""
        target_of = [candidate.target for candidate in self._problem.candidates]
        present = {target_of[index] for index, _ in priced}
        sets = compatible_sets(self._targets[name] for name in present) or (frozenset(),)
        return [[each for each in priced if target_of[each[0]] in names] for names in sets]

    def _sweep(self, moves: Iterable[Move]) -> Sweep:
        problem = self._problem
        return Sweep(
            problem.node_count,
            problem.needs_kernel,
            moves,
            step=self._step,
            key=self._key,
            copies=self._prepared.copies,
        )

    def _best(self, priced: Sequence[tuple[int, int]]) -> tuple[_Found, int]:
        """Search each set of targets that may share a plan and keep the best."""
        needs = self._problem.needs_kernel
        missing = needs & ~self._covered(priced)
        if missing:
            raise NoCoverError(tuple(bits(missing)))
        best: _Found | None = None
        states = 0
        bounds: list[int] = []
        gaps: list[int] = []
        for usable in self._mixable(priced):
            missing = needs & ~self._covered(usable)
            if missing:
                gaps.append(missing)
                continue
            try:
                found = self._solve(self._undominated(usable))
            except NoCoverError as error:
                gaps.append(mask_of(error.nodes))
                continue
            states += found.states
            if found.bound is not None:
                bounds.append(found.bound)
            if best is None or found.rank() < best.rank():
                best = found
        if best is None:
            raise NoCoverError(tuple(bits(min(gaps, key=lambda m: (m.bit_count(), m)))), stuck=True)
        bound = min([best.value >> KERNEL_BITS, *bounds]) if bounds else None
        return dataclasses.replace(best, bound=bound), states

    def _covered(self, priced: Iterable[tuple[int, int]]) -> int:
        return union_of(self._kernels(index) for index, _ in priced)

    def _solve(self, moves: Sequence[Move]) -> _Found:
        limits = self._limits
        sweep = self._sweep(moves)
        plain = sweep.run(max_states=min(limits.plain_states, limits.max_states))
        if plain.complete:
            return self._exact(plain.path, plain.states, plain.stuck)
        states = plain.states
        beam: Path | None = None
        for width in limits.widths:
            narrow = sweep.run(max_states=width * (self._problem.node_count + 1), width=width)
            states += narrow.states
            beam = narrow.path
            if narrow.complete or beam is not None:
                break
        prices = node_prices((move.shape.kernels, move.value >> KERNEL_BITS) for move in moves)
        bound = sum(prices.values())
        reduced = {
            move.index: move.value - (sum(prices[node] for node in bits(move.shape.kernels)) << KERNEL_BITS)
            for move in moves
        }
        worst = None if beam is None else beam.value - (bound << KERNEL_BITS)
        full = sweep.run(max_states=limits.max_states, worst=worst, reduced=reduced)
        states += full.states
        if full.complete:
            return self._exact(full.path, states, full.stuck)
        if beam is None:
            raise SearchError(f"no plan found within {limits.max_states} states; allow fewer candidates or more states")
        return self._found(beam.moves(), states, bound)

    def _exact(self, path: Path | None, states: int, stuck: tuple[int, ...]) -> _Found:
        if path is None:
            raise NoCoverError(stuck, stuck=True)
        return self._found(path.moves(), states, None)

    def _found(self, moves: Sequence[Move], states: int, bound: int | None) -> _Found:
        copies: tuple[DeviceCopy, ...] = ()
        if self._prepared.copies is not None:
            copies = self._prepared.copies.copies_of(move.traffic for move in moves)
        return _Found(moves=tuple(moves), copies=copies, states=states, bound=bound)

    def _result(self, found: _Found, states: int, bound: int | None, unmeasured: int) -> SearchResult:
        order = execution_order([move.shape for move in found.moves])
        indices = [found.moves[at].index for at in order]
        chosen = tuple(self._problem.candidates[index] for index in indices)
        costs = [self._costs[index] for index in indices]
        costs_us = tuple(cost for cost in costs if not isinstance(cost, Unmeasured))
        dispatch_us = [self._targets[candidate.target].dispatch_us for candidate in chosen]
        total = found.value >> KERNEL_BITS
        gap_us = 0.0 if bound is None else max(0, total - bound) / PICOSECONDS_PER_US
        return SearchResult(
            candidates=chosen,
            costs_us=costs_us,
            total_us=math.fsum((*costs_us, *dispatch_us, *(copy.cost_us for copy in found.copies))),
            exact=bound is None,
            gap_us=gap_us,
            states=states,
            method="exact" if found.bound is None else "beam",
            unmeasured=unmeasured,
            copies=found.copies,
        )


def search(
    problem: SearchProblem | Prepared,
    costs: CostSource,
    *,
    allow: Allow | None = None,
    limits: SearchLimits | None = None,
) -> SearchResult:
    """Find the cheapest legal plan; see `ExactSearch.run`."""
    return ExactSearch(problem, costs, limits=limits).run(allow)
