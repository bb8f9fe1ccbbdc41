"""What a target takes of a model, as the store keeps it: enough to propose its candidates without its plugin."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import ClassVar

from collage_core.candidates.proposals import Proposals, TargetRule
from collage_core.contract import Joins, Target
from collage_core.fusion import FusionSpec, RuleOutcome, SubGraph
from collage_core.fusion.known_rule import KnownRule
from collage_core.fusion.rule_of_table import BaseRule, joined_rule
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.dataflow import DataflowGraph

_NOTED = "a rule that was noted"
_BEFORE_TARGET = "|"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedPart:
    """A sub-graph, or a labelled part of one.

    Attributes:
        nodes: Mask of its nodes, in hexadecimal.
        label: Name of the pattern that matched it; empty if none did.
        attributes: What the pattern's `attrs_getter` returned, as sorted pairs.
        parts: Labelled parts inside.
    """

    nodes: str
    label: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    parts: tuple[SavedPart, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedTake:
    """What a target takes of a model on a machine.

    With the default rule it is what the library takes as it is, and core makes the rest of it wherever it is wanted. A
    rule of the plugin's own is not known to core: then these are its candidates.

    Attributes:
        target: The target.
        plugin: Version of the plugin.
        joins: How core joins what the library takes; None where the rule is the plugin's own.
        query: What the library itself refused: index of the node, and reason.
        sub_graphs: What is taken.
        refusals: What the rule refused, likewise.
        left_out: A sentence for each kind of candidate that a bound excluded.
        unlike: Mask of the nodes that were refused because no pattern matches, in hexadecimal.
        place: Its place among the toolchain's targets: what they propose is looked at in this order.
    """

    KIND: ClassVar[str] = "what a target takes"
    VERSION: ClassVar[int] = 1

    target: Target
    plugin: str
    joins: Joins | None
    query: tuple[tuple[int, str], ...]
    sub_graphs: tuple[SavedPart, ...]
    refusals: tuple[tuple[int, str], ...]
    left_out: tuple[str, ...]
    unlike: str
    place: int = 0

    @staticmethod
    def name(graph_hash: str, host: str, target: str) -> str:
        """Return under what it is kept.

        Args:
            graph_hash: Structural hash of the whole model.
            host: Name of the machine, as in `saved_machine`.
            target: Name of the target; empty for the beginning that all of the machine's have.
        """
        return f"{graph_hash}/{host}{_BEFORE_TARGET}{target}"

    @staticmethod
    def target_of(name: str) -> str:
        """Return the target's name by what it is kept under."""
        return name.rpartition(_BEFORE_TARGET)[2]

    @classmethod
    def of(cls, proposals: Proposals, plugin: str, place: int) -> SavedTake | None:
        """Return what a target takes, by what it proposed; None where the user's choices have a part in it.

        Args:
            proposals: What it proposed, in whichever round.
            plugin: Version of its plugin.
            place: Its place among the toolchain's targets.
        """
        rule = proposals.rule
        if rule.pinned or (rule.base is None and not rule.is_plugins_own) or (rule.base is not None and rule.own):
            return None
        taken = proposals.taken or RuleOutcome(
            sub_graphs=tuple(candidate.sub_graph for candidate in proposals.candidates),
            refusals=proposals.refusals,
            left_out=proposals.left_out,
        )
        return cls(
            target=rule.target,
            plugin=plugin,
            joins=None if rule.base is None else rule.base.joins,
            query=_pairs(rule.query.items()),
            sub_graphs=tuple(map(_saved, taken.sub_graphs)),
            refusals=_pairs(taken.refusals.items()),
            left_out=taken.left_out,
            unlike=hex(taken.unlike),
            place=place,
        )

    def rule(self, graph: DataflowGraph) -> TargetRule:
        """Return the target's rule for the graph that it was noted of.

        Args:
            graph: A graph with the same structural hash, its nodes in the same order.

        Raises:
            ValueError: If it is another graph.
        """
        outcome = RuleOutcome(
            sub_graphs=tuple(self._sub_graph(graph, each) for each in self.sub_graphs),
            refusals=dict(self.refusals),
            left_out=self.left_out,
            unlike=int(self.unlike, 16),
        )
        known = KnownRule(graph, outcome)
        base = None if self.joins is None else BaseRule(known, self.joins)
        rule = known if base is None else joined_rule(base, self.target)
        return TargetRule(
            target=self.target,
            spec=FusionSpec(name=self.target.name, rule=rule, targets=(self.target,)),
            query=dict(self.query),
            base=base,
            own="" if base is not None else _NOTED,
        )

    @staticmethod
    def _sub_graph(graph: DataflowGraph, saved: SavedPart) -> SubGraph:
        composites = tuple(map(_composite, saved.parts))
        return SubGraph(graph, int(saved.nodes, 16), saved.label, composites, saved.attributes)


def _pairs(items: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(items))


def _saved(sub_graph: SubGraph) -> SavedPart:
    parts = _saved_parts(sub_graph.composites)
    return SavedPart(nodes=hex(sub_graph.nodes), label=sub_graph.label, attributes=sub_graph.attributes, parts=parts)


def _saved_parts(parts: Sequence[Composite]) -> tuple[SavedPart, ...]:
    return tuple(
        SavedPart(nodes=hex(part.nodes), label=part.label, attributes=part.attributes, parts=_saved_parts(part.parts))
        for part in parts
    )


def _composite(saved: SavedPart) -> Composite:
    return Composite(saved.label, int(saved.nodes, 16), saved.attributes, tuple(map(_composite, saved.parts)))
