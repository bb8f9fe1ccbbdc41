"""What all targets propose for one graph, once quantised operators that none takes whole have come apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from collage_core.candidates.proposals import Outcomes, Proposals, TargetRule, propose
from collage_core.candidates.refusals import TargetFailure
from collage_core.errors import PluginError
from collage_core.fusion import CandidateBounds, CandidateKernel, quantised_groups
from collage_core.fusion.rule import RuleCache
from collage_core.ir.graph.dataflow import DataflowGraph


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllProposals:
    """What all targets propose.

    Attributes:
        by_target: Proposals by target name; of a target that failed, those it made before.
        failures: Targets whose plugin failed to propose.
        groups: Sets of nodes of which no candidate holds a part.
        candidates: Those of every round, in order, with repetitions: also of a round after which a quantised operator
            came apart.
        cache: What rules found out of the graph.
    """

    by_target: Mapping[str, Proposals] = dataclasses.field(default_factory=dict)
    failures: tuple[TargetFailure, ...] = ()
    groups: tuple[int, ...]
    candidates: tuple[CandidateKernel, ...] = ()
    cache: RuleCache = dataclasses.field(default_factory=RuleCache, repr=False, compare=False)

    @property
    def covered(self) -> int:
        """Mask of the nodes in some candidate of some target."""
        mask = 0
        for each in self.by_target.values():
            mask |= each.covered
        return mask

    def without_groups(self, groups: Iterable[int]) -> AllProposals:
        """Return the same, to be proposed anew with these groups free to come apart."""
        failed = frozenset(groups)
        return dataclasses.replace(self, groups=tuple(group for group in self.groups if group not in failed))


def propose_all(
    rules: Sequence[TargetRule],
    graph: DataflowGraph,
    bounds: CandidateBounds,
    *,
    cuts: Sequence[int] | None = None,
    before: AllProposals | None = None,
    proposed: Callable[[TargetRule, PluginError | None], None] = lambda rule, error: None,
) -> AllProposals:
    """Run every target's rule until each group left is taken whole by some target.

    A quantised operator that no target takes whole has to fall apart, or nobody runs it. A target whose plugin fails
    is not asked again.

    Args:
        rules: The targets with their rules.
        graph: The prepared model's graph.
        bounds: How many candidates to make.
        cuts: Where regions may begin and end; None to choose by estimated work.
        before: An earlier answer to start from: its failures, its groups, and the proposals of who fails now.
        proposed: Called in each round after each rule, with its plugin's failure if it failed.
    """
    groups = quantised_groups(graph) if before is None else before.groups
    found = {} if before is None else dict(before.by_target)
    failures = [] if before is None else list(before.failures)
    cache = RuleCache() if before is None else before.cache
    candidates: list[CandidateKernel] = []
    while True:
        outcomes: Outcomes = {}
        for rule in rules:
            name, failed = rule.target.name, None
            if all(failure.target.name != name for failure in failures):
                try:
                    found[name] = propose(rule, graph, bounds, cuts=cuts, groups=groups, cache=cache, outcomes=outcomes)
                except PluginError as error:
                    failed = error
                    failures.append(TargetFailure.of(rule.target, error))
            candidates += found[name].candidates if name in found else ()
            proposed(rule, failed)
        whole = _taken_whole(groups, found.values())
        if whole == groups:
            return AllProposals(
                by_target=found,
                failures=tuple(failures),
                groups=groups,
                candidates=tuple(candidates),
                cache=cache,
            )
        groups = whole


def _taken_whole(groups: Iterable[int], proposals: Iterable[Proposals]) -> tuple[int, ...]:
    """Return the groups that some target takes."""
    covered = [each.covered for each in proposals]
    return tuple(group for group in groups if any(not group & ~nodes for nodes in covered))
