"""Moves between plans that differ in one decision: which target runs a region, and where regions end."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from collage_core.contract.cost import INVALID
from collage_core.errors import NoCoverError, SearchError
from collage_core.search.costs import CostTable
from collage_core.search.exact import ExactSearch
from collage_core.search.order import execution_order
from collage_core.search.prepared import Prepared, prepare
from collage_core.search.problem import SearchCandidate, SearchProblem

Choice = tuple[SearchCandidate, ...]
"""A plan: its candidates in execution order."""


class Moves:
    """Neighbours of plans of one problem, independent of whether their costs are known.

    Of several candidates of one target with equal coverage, the first in canonical order is used.

    Args:
        problem: The problem; its candidates are what plans are made of.
    """

    def __init__(self, problem: SearchProblem | Prepared) -> None:
        self._prepared = prepare(problem)
        self._problem = self._prepared.problem
        self._targets = {target.name: target for target in self._problem.targets}
        # what is drawn by chance knows nothing of copies, but those that are impossible
        copies = self._prepared.copies
        self._drawn = self._prepared
        if copies is not None:
            self._drawn = dataclasses.replace(self._prepared, copies=copies.without_costs())
        self._traffic = dict(zip(self._problem.candidates, self._prepared.traffic, strict=True))
        self._shapes = dict(zip(self._problem.candidates, self._prepared.shapes, strict=True))
        order = dict(zip(self._problem.candidates, self._prepared.order, strict=True))
        self._covering: dict[int, dict[str, SearchCandidate]] = {}  # by nodes covered and target
        for candidate in sorted(order, key=lambda each: order[each]):
            shape = self._shapes[candidate]
            if shape is not None:
                self._covering.setdefault(shape.kernels, {}).setdefault(candidate.target, candidate)

    def neighbours(self, plan: Choice) -> Iterator[tuple[str, Choice]]:
        """Yield every legal plan one move away, once, with the name of the move: give, merge or split."""
        seen = {frozenset(plan)}
        for name, removed, added in self._exchanges(plan):
            other = self.arranged([each for each in plan if each not in removed] + list(added))
            if other is not None and frozenset(other) not in seen:
                seen.add(frozenset(other))
                yield name, other

    def shifted(self, plan: Choice) -> Iterator[Choice]:
        """Yield every legal plan in which the border between two kernels lies elsewhere; who runs them is the same."""
        for at, one in enumerate(plan):
            for two in plan[at + 1 :]:
                own, both = self._kernels(one), self._kernels(one) | self._kernels(two)
                rest = [each for each in plan if each not in (one, two)]
                for part, firsts in self._covering.items():
                    if part == own or part & ~both or (part & ~own and own & ~part):
                        continue
                    seconds = self._covering.get(both & ~part, {})
                    if one.target in firsts and two.target in seconds:
                        other = self.arranged([*rest, firsts[one.target], seconds[two.target]])
                        if other is not None:
                            yield other

    def _exchanges(self, plan: Choice) -> Iterator[tuple[str, Choice, Choice]]:
        for one in plan:
            for target, other in self._covering[self._kernels(one)].items():
                if target != one.target:
                    yield "give", (one,), (other,)
        for at, one in enumerate(plan):
            for two in plan[at + 1 :]:
                for other in self._covering.get(self._kernels(one) | self._kernels(two), {}).values():
                    yield "merge", (one, two), (other,)
        for one in plan:
            whole = self._kernels(one)
            low = whole & -whole
            for part, firsts in self._covering.items():
                rest = whole & ~part
                if part & ~whole or not part & low or not rest or rest not in self._covering:
                    continue
                for first in firsts.values():
                    for second in self._covering[rest].values():
                        if one.target in (first.target, second.target):
                            yield "split", (one,), (first, second)

    def crossed(self, one: Choice, other: Choice, rng: random.Random) -> Choice | None:
        """Combine the kernels of two plans, drawn at random where they differ; None if they do not fit together."""
        costs: dict[tuple[str, str], float] = {}
        kept = sorted(set(one) | set(other), key=lambda each: (each.nodes, each.target, each.label, each.key))
        for each in kept:
            kernels = self._kernels(each).bit_count()
            costs.setdefault((each.target, each.key), kernels * rng.uniform(1.0, 2.0))
        allowed = set(kept)
        try:
            result = ExactSearch(self._drawn, CostTable(costs)).run(lambda each: each in allowed)
        except (NoCoverError, SearchError):
            return None
        return result.candidates

    def arranged(self, candidates: list[SearchCandidate]) -> Choice | None:
        """Put kernels in an order in which they can run; None if they are not a legal plan."""
        shapes = [self._shapes[each] for each in candidates]
        covered = 0
        for shape in shapes:
            if shape is None or shape.kernels & covered:
                return None
            covered |= shape.kernels
        used = [self._targets[name] for name in sorted({each.target for each in candidates})]
        if covered != self._problem.needs_kernel or any(not a.mixes_with(b) for a in used for b in used):
            return None
        if self._prepared.copies is not None:
            copies = self._prepared.copies.copies_of(self._traffic[each] for each in candidates)
            if any(copy.cost_us == INVALID for copy in copies):
                return None
        try:
            order = execution_order([shape for shape in shapes if shape is not None])
        except SearchError:
            return None
        return tuple(candidates[at] for at in order)

    def _kernels(self, candidate: SearchCandidate) -> int:
        shape = self._shapes[candidate]
        assert shape is not None
        return shape.kernels
