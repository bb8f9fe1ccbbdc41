"""Phase 3: candidates are measured, searched, merged, measured again, until the best path is stable.

Which candidates are measured depends on recorded costs and on nothing else, and a cost counts from the step on that
asks for it, so that a second run over the same database takes the same steps and measures nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Literal

from collage.measure.driver.records import DEADLINE_REASON
from collage.measure.driver.source import MeasuringCostSource, Step
from collage.measure.wire.outcomes import Failed
from collage.options import Preset
from collage.report.progress import Progress
from collage_core.candidates.pool import CacheKey, CandidatePool
from collage_core.candidates.proposals import Proposals, TargetRule, propose, taken_whole, worthwhile
from collage_core.candidates.refusals import TargetFailure
from collage_core.contract import Joins, Unmeasured
from collage_core.errors import NoCoverError, PluginError
from collage_core.fusion import CandidateBounds, CandidateKernel, cut_positions, merged_neighbours, quantised_groups
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.graph.work import estimated_work_us
from collage_core.search import SearchResult
from collage_core.search.exact import Allow

_UNMEASURED_WEIGHT = 0.1
"""Weight of a node's estimated work against a measured difference between targets, when cuts are placed."""

_GROUP_ATTEMPTS = 3
"""How many groups around a node are tried before it is given up, where nothing runs it alone."""

_GROUPS_NAMED = 3

_HANGS = 4
"""A target is given up that hung on so many candidates and has come to nothing else: each costs the whole deadline."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explored:
    """What an exploration came to.

    Attributes:
        proposals: What each target proposed, by target name.
        result: The last search.
        rounds: Searches run.
        left_out: What bounds and budget cut off, a sentence each.
        search_s: Seconds spent searching.
    """

    proposals: dict[str, Proposals]
    result: SearchResult
    rounds: int
    left_out: tuple[str, ...]
    search_s: float


class Explorer:
    """One exploration of one graph.

    Args:
        pool: Takes the candidates.
        rules: The targets with their rules.
        source: Measures; the pool's costs come from it.
        preset: How much to measure.
        bounds: How many candidates to make.
        progress: Is told.
        budget_s: Seconds after which only what a plan cannot do without is measured: the whole model on each target,
            and single operators nothing else covers. None for no limit.

    Attributes:
        proposals: What each target proposed so far, by target name.
        failures: Targets whose plugin failed to propose; what they proposed before stays.
    """

    def __init__(
        self,
        pool: CandidatePool,
        rules: Sequence[TargetRule],
        source: MeasuringCostSource,
        *,
        preset: Preset,
        bounds: CandidateBounds,
        progress: Progress,
        budget_s: float | None = None,
    ) -> None:
        self._pool = pool
        self._graph = pool.graph
        self._source = source
        self._rules = rules
        self._preset = preset
        self._bounds = bounds
        self._progress = progress
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._skipped = 0
        self._well: set[str] = set()  # targets that came to something
        self._hangs: dict[str, int] = {}  # by target, before it did
        self._given_up: dict[str, int] = {}
        self._quantised = quantised_groups(self._graph)
        self._whole = self._quantised  # those of which no candidate holds a part
        self._search_s = 0.0
        self._rounds = 0
        self.proposals: dict[str, Proposals] = {}
        self.failures: list[TargetFailure] = []
        self._reached: set[CacheKey] = set()
        pool.reached = self._reached

    def run(self) -> Explored:
        """Measures and searches.

        Raises:
            NoCoverError: If no plan covers the graph.
        """
        proposals = self._propose(())
        self._check_cover(proposals)
        cuts = self._gather(proposals)
        self._cover()
        if failed := {group for group in self._whole if group & self._uncovered()}:
            self._whole = tuple(group for group in self._whole if group not in failed)
            self._propose(cuts)
            self._cover()
        self._fit()
        self._improve()
        result = self._confirmed()
        proposals = dict(self.proposals)
        return Explored(
            proposals=proposals,
            result=result,
            rounds=self._rounds,
            left_out=self._left_out(proposals),
            search_s=self._search_s,
        )

    def _gather(self, proposals: dict[str, Proposals]) -> tuple[int, ...]:
        """Measures what a plan may be made of; gives the positions of the cuts between regions."""
        self._measure(
            "measuring operators and whole models", self._worthwhile(proposals, operators=self._preset.operators)
        )
        cuts = self._cuts()
        known = set(self._pool)
        regional = self._propose(cuts)
        regions = [c for each in regional.values() for c in each.candidates if c not in known]
        self._measure(f"measuring regions between {len(cuts)} cuts", regions)
        return cuts

    def _worthwhile(self, proposals: dict[str, Proposals], operators: int) -> list[CandidateKernel]:
        return [
            candidate
            for each in proposals.values()
            for candidate in worthwhile(self._graph, each.candidates, self._source.key, operators, self._whole)
        ]

    def _propose(self, cuts: Sequence[int]) -> dict[str, Proposals]:
        """What each target proposes; a quantised operator that none of them takes whole may be split."""
        self._progress.phase("finding candidates", len(self._rules))
        for rule in self._rules:
            name = rule.target.name
            if all(failure.target.name != name for failure in self.failures):
                try:
                    self.proposals[name] = propose(rule, self._graph, self._bounds, cuts=cuts, groups=self._whole)
                except PluginError as error:
                    self.failures.append(TargetFailure.of(rule.target, error))
                    self._progress.message(f"{name}: {error}")
            for candidate in self.proposals[name].candidates if name in self.proposals else ():
                self._pool.add(candidate)
            self._progress.advance()
        if (whole := taken_whole(self._whole, self.proposals.values())) != self._whole:
            self._whole = whole
            return self._propose(cuts)
        return dict(self.proposals)

    def _check_cover(self, proposals: dict[str, Proposals]) -> None:
        """Raises at once, before anything is measured, where no target proposes anything for a node."""
        missing = self._graph.needs_kernel
        for each in proposals.values():
            missing &= ~each.covered
        if missing:
            raise NoCoverError(tuple(iterate_bits(missing)))

    def _cuts(self) -> tuple[int, ...]:
        """Positions around the nodes on which targets differ most, and where the work is."""
        weights = self._weights()
        return cut_positions(
            self._graph, self._bounds.segments - 1, weights, max_live=self._bounds.max_live, groups=self._whole
        )

    def _weights(self) -> list[float]:
        """How much it matters, in microseconds, who runs each node."""
        graph, pool = self._graph, self._pool
        costs: dict[str, dict[str, float]] = {}
        keys: dict[int, str] = {}
        for candidate in pool:
            if not self._is_operator(candidate) or not candidate.target.mixable:
                continue
            last = (candidate.sub_graph.nodes & graph.needs_kernel).bit_length() - 1
            key = keys[last] = self._source.key(candidate.sub_graph)
            cost = pool.selected_us(candidate)
            if cost is not None:
                costs.setdefault(key, {})[candidate.measured_as.name] = cost
        weights = self._believed_weights()
        for index, key in keys.items():
            known = costs.get(key, {}).values()
            if len(known) > 1:
                weights[index] = max(known) - min(known)
        return weights

    def _believed_weights(self) -> list[float]:
        """The same where nothing is measured."""
        return [_UNMEASURED_WEIGHT * work for work in estimated_work_us(self._graph)]

    def _is_operator(self, candidate: CandidateKernel) -> bool:
        """Whether nothing smaller runs its nodes: one of them, or a quantised operator."""
        nodes = candidate.sub_graph.nodes & self._graph.needs_kernel
        return nodes.bit_count() == 1 or nodes in self._whole

    def _measure(
        self,
        what: str,
        candidates: Iterable[CandidateKernel],
        purpose: Literal["select", "confirm"] = "select",
        *,
        needed: bool = False,
    ) -> None:
        waiting: dict[CacheKey, CandidateKernel] = {}
        for candidate in candidates:
            self._pool.add(candidate)
            waiting.setdefault(self._pool.cache_key(candidate), candidate)
        if not waiting:
            return
        self._progress.phase(what, len(waiting))
        for key, candidate in waiting.items():
            name = candidate.measured_as.name
            if self._is_spent and not needed and not (purpose == "select" and self._pool.is_whole(candidate)):
                self._skipped += 1
            elif self._hangs.get(name, 0) >= _HANGS and name not in self._well and not needed:
                self._given_up[name] = self._given_up.get(name, 0) + 1
            else:
                self._source.measure([candidate], purpose, self._tell)
                self._reached.add(key)
                self._pool.forget(candidate)
                self._count_hang(candidate)
            self._progress.advance()

    def _count_hang(self, candidate: CandidateKernel) -> None:
        """Goes by what is recorded, so that a later run over the same database gives up at the same point."""
        name, outcome = candidate.measured_as.name, self._source.outcome(candidate)
        hung = isinstance(outcome, Failed) and outcome.reason.startswith(DEADLINE_REASON)
        if not hung:
            self._well.add(name)
        elif name not in self._well:
            self._hangs[name] = self._hangs.get(name, 0) + 1

    @property
    def _is_spent(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _tell(self, step: Step) -> None:
        if isinstance(step.outcome, Failed):
            names = step.candidate.sub_graph.names
            shown = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
            self._progress.message(f"{step.candidate.measured_as.name} failed on {shown}: {step.outcome.reason}")

    def _cover(self) -> None:
        """Measures until something usable covers every node: single operators, then the smallest groups there are."""
        alone = [c for c in self._pool if self._is_operator(c)]
        missing = self._uncovered()
        self._measure(
            "measuring what nothing covers yet", [c for c in alone if c.sub_graph.nodes & missing], needed=True
        )
        for _ in range(_GROUP_ATTEMPTS):
            smallest: dict[int, CandidateKernel] = {}
            missing = self._uncovered()
            for candidate in self._pool:
                size = candidate.sub_graph.nodes.bit_count()
                if isinstance(self._pool.cost(candidate, confirmed=False), Unmeasured):
                    for index in iterate_bits(candidate.sub_graph.nodes & missing):
                        if index not in smallest or size < smallest[index].sub_graph.nodes.bit_count():
                            smallest[index] = candidate
            self._measure("measuring groups of what nothing covers alone", smallest.values(), needed=True)

    def _fit(self) -> None:
        """Measures every operator alone where what covers the nodes overlaps, or makes circles, whatever is chosen."""
        try:
            self._search()
        except NoCoverError as error:
            if error.stuck:
                alone = [c for c in self._pool if self._is_operator(c)]
                missing = [c for c in alone if isinstance(self._pool.cost(c, confirmed=False), Unmeasured)]
                self._measure("measuring what nothing fits with", missing, needed=True)

    def _uncovered(self) -> int:
        missing = self._graph.needs_kernel
        for candidate in self._pool:
            if self._pool.selected_us(candidate) is not None:
                missing &= ~candidate.sub_graph.nodes
        return missing

    # Searching

    def _improve(self) -> None:
        """Searches, and measures merged neighbours of the best plans, until there are no new ones."""
        for _ in range(self._preset.coalesce_rounds):
            merged = [candidate for path in self._paths() for candidate in self._merged(path)]
            for candidate in merged:
                self._pool.add(candidate)
            fresh = [c for c in merged if isinstance(self._pool.cost(c, confirmed=False), Unmeasured)]
            if not fresh:
                break
            self._measure("measuring merged neighbours", fresh)

    def _confirmed(self) -> SearchResult:
        """Searches, measures the path again, and searches again until it stays the same."""
        result = self._search()
        for _ in range(self._preset.confirm_rounds):
            path = [self._pool.candidate(chosen) for chosen in result.candidates]
            fresh = [c for c in path if self._pool.cache_key(c) not in self._pool.confirmed]
            if not fresh:
                break
            lacking = [c for c in fresh if not self._source.is_confirmed(c)]
            self._measure("measuring the chosen path again", lacking, "confirm")
            self._pool.confirmed.update(map(self._pool.cache_key, fresh))
            result = self._search()
        return result

    def _paths(self) -> list[SearchResult]:
        """The best plan, and where that is one kernel for everything, also the best that is not."""
        best = self._search()
        if all(chosen.nodes != self._pool.whole for chosen in best.candidates):
            return [best]
        with contextlib.suppress(NoCoverError):
            return [best, self._search(lambda chosen: chosen.nodes != self._pool.whole)]
        return [best]

    def _search(self, allow: Allow | None = None) -> SearchResult:
        began = time.monotonic()
        result = self._pool.engine().run(allow)
        self._search_s += time.monotonic() - began
        self._rounds += 1
        return result

    def _merged(self, result: SearchResult) -> list[CandidateKernel]:
        """Neighbours on a plan that one target runs and could run as one kernel."""
        path = [self._pool.candidate(chosen) for chosen in result.candidates]
        merged: list[CandidateKernel] = []
        for rule in self._rules:
            mine = [c for c in path if c.target == rule.target and c.target.joins is Joins.ANY]
            if len(mine) > 1:
                others = [c.sub_graph.nodes for c in path if c not in mine]
                refused = mask_of({*rule.query, *rule.pinned})
                parts = [c.sub_graph for c in mine]
                whole = merged_neighbours(self._graph, parts, others, rule.target, forbidden=refused)
                merged += [CandidateKernel(each, rule.spec, rule.target) for each in whole if each not in parts]
        return merged

    def _left_out(self, proposals: dict[str, Proposals]) -> tuple[str, ...]:
        said = [sentence for each in proposals.values() for sentence in each.left_out]
        unmeasured = {
            self._pool.cache_key(c) for c in self._pool if isinstance(self._pool.cost(c, confirmed=False), Unmeasured)
        }
        if unmeasured:
            said.append(
                f"{len(unmeasured)} of {self._pool.distinct()} distinct candidates were not measured "
                f"(preset {self._preset.name})"
            )
        if apart := [group for group in self._quantised if group not in self._whole]:
            named = ", ".join(repr(self._graph.names[group.bit_length() - 1]) for group in apart[:_GROUPS_NAMED])
            said.append(f"{len(apart)} quantised operators fall apart: no toolchain runs them whole ({named})")
        said += [
            f"{name} hung on the first {_HANGS} candidates that were tried; {count} others were not"
            for name, count in sorted(self._given_up.items())
        ]
        if self._skipped:
            said.append(f"the budget ended before {self._skipped} measurements")
        return tuple(dict.fromkeys(said))
