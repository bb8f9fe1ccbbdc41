"""Propose single nodes: those a predicate accepts, or those of a fusible kind."""

from __future__ import annotations

import dataclasses

from collage_core.fusion.marked import offered_call
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.patterns import PatternTable


@dataclasses.dataclass(frozen=True)
class OpPredicateRule(FusionRule):
    """Proposes every node that the table's predicates accept, alone.

    Views are tested too: a refused view is inside no candidate.

    Attributes:
        table: Holds the predicates.
    """

    table: PatternTable

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Check every node against the query's refusals, then against the predicates."""
        found = []
        refusals: dict[int, str] = {}
        for index in range(len(graph)):
            if index in context.refusals:
                refusals[index] = context.refusals[index]
                continue
            if index in graph.compilers:
                call = offered_call(graph, index, context.target.toolchain, self.table.supports)
                if isinstance(call, SubGraph):
                    found.append(call)
                else:
                    refusals[index] = call.reason
                continue
            answer = self.table.supports(graph, index)
            if not answer:
                refusals[index] = answer.reason
            elif not graph.is_host(index):
                found.append(SubGraph(graph, 1 << index))
        return RuleOutcome(sub_graphs=tuple(found), refusals=refusals)


@dataclasses.dataclass(frozen=True)
class OpCallByKindRule(FusionRule):
    """Proposes every node up to a kind, alone: the nodes a code generator can compile to a loop nest.

    Attributes:
        most: The largest kind; anchors by default, so only opaque operators are left out.
    """

    most: OpPatternKind = OpPatternKind.OUT_ELEMENTWISE_FUSABLE

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Check every node against the query's refusals, then against the kinds."""
        found = []
        refusals: dict[int, str] = {}
        for index in iterate_bits(graph.all_mask):
            if index in context.refusals:
                refusals[index] = context.refusals[index]
            elif index in graph.compilers:
                refusals[index] = "the model marks it as one kernel"
            elif graph.kinds[index] > self.most:
                refusals[index] = f"{graph.nodes[index].op_type} is {graph.kinds[index].name.lower()}"
            elif not graph.is_host(index):
                found.append(SubGraph(graph, 1 << index))
        return RuleOutcome(sub_graphs=tuple(found), refusals=refusals)
