"""Rules that propose single nodes: those a predicate takes, or those of a fusible kind."""

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
    """Every node the table's predicates take, alone. Views are asked about too: a refused one is inside nothing.

    Attributes:
        table: Holds the predicates.
    """

    table: PatternTable

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Asks the query's refusals, then the predicates, about every node."""
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
    """Every node up to a kind, alone: what a code generator can make a loop nest of.

    Attributes:
        most: The largest kind; anchors by default, so only opaque operators are left out.
    """

    most: OpPatternKind = OpPatternKind.OUT_ELEMENTWISE_FUSABLE

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Asks the query's refusals, then the kinds, about every node."""
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
