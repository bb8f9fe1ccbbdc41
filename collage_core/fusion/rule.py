"""The base class of every rule that finds candidates."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from collage_core.contract.target import Target
from collage_core.fusion.bounds import CandidateBounds
from collage_core.fusion.quantised import quantised_groups
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph


@dataclasses.dataclass(frozen=True, slots=True)
class RuleCache:
    """What rules found out of one graph, to which they add: a search proposes regions many times, between other cuts.

    Attributes:
        closures: Groups of each closure, and a sentence for each bound that cut it off; a key holds all that a closure
            depends on. One takes seconds.
        outcomes: What rules found that are asked once; see `OnceRule`.
    """

    closures: dict[object, tuple[tuple[SubGraph, ...], tuple[str, ...]]] = dataclasses.field(default_factory=dict)
    outcomes: dict[object, RuleOutcome] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleContext:
    """What a rule may use besides the graph.

    Attributes:
        target: Whom the candidates are for.
        bounds: How many to make.
        refusals: Reason by index of each node the toolchain's own query refused; such nodes are never inside.
        cut_positions: Where regions may begin and end; None to choose them by `cut_positions`.
        groups: Sets of nodes of which no candidate holds a part; None to find them by `quantised_groups`.
        cache: What rules found out of this graph before.
    """

    target: Target
    bounds: CandidateBounds = dataclasses.field(default_factory=CandidateBounds)
    refusals: Mapping[int, str] = dataclasses.field(default_factory=dict)
    cut_positions: Sequence[int] | None = None
    groups: Sequence[int] | None = None
    cache: RuleCache = dataclasses.field(default_factory=RuleCache, repr=False, compare=False)

    def whole(self, graph: DataflowGraph) -> tuple[int, ...]:
        """Return the sets of nodes in a graph that no candidate may split."""
        return quantised_groups(graph) if self.groups is None else tuple(self.groups)

    @cached_property
    def refused(self) -> int:
        """Mask of the refused nodes."""
        mask = 0
        for index in self.refusals:
            mask |= 1 << index
        return mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleOutcome:
    """Result of a rule.

    Attributes:
        sub_graphs: The candidates, in a deterministic order; they may overlap.
        refusals: By index, reason for which the node was refused, for nodes in no candidate.
        left_out: One sentence for each exclusion, by a bound or because the rule knows that it is no kernel.
        unlike: Mask of the refused nodes whose only known reason is a pattern mismatch; any other reason is more
            informative.
    """

    sub_graphs: tuple[SubGraph, ...] = ()
    refusals: Mapping[int, str] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    unlike: int = 0

    def with_sub_graphs(self, sub_graphs: Iterable[SubGraph], *left_out: str) -> RuleOutcome:
        """Return an outcome with the same refusals and other sub-graphs, each once."""
        return RuleOutcome(
            sub_graphs=tuple(dict.fromkeys(sub_graphs)),
            refusals=self.refusals,
            left_out=(*self.left_out, *left_out),
            unlike=self.unlike,
        )

    @property
    def covered(self) -> int:
        """Mask of the nodes in some candidate."""
        mask = 0
        for sub_graph in self.sub_graphs:
            mask |= sub_graph.nodes
        return mask


class FusionRule(abc.ABC):
    """Finds the candidates of one target in a graph. Rules are values: they keep no state between graphs."""

    @abc.abstractmethod
    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Find candidates.

        Args:
            graph: The prepared model's graph.
            context: Target, bounds and the toolchain's refusals.

        Returns:
            Candidates with no refused node inside, and why nodes were refused.
        """

    def candidates(self, graph: DataflowGraph, context: RuleContext) -> list[SubGraph]:
        """Return the sub-graphs that `propose` finds."""
        return list(self.propose(graph, context).sub_graphs)
