"""Match patterns against a graph, at one node or as a whole; `attempt` does the search."""

from __future__ import annotations

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns.attempt import Attempt
from collage_core.patterns.matches import Match, Mismatch
from collage_core.patterns.pattern import Pattern
from collage_core.patterns.scopes import root_types, self_contained, takes_producer


class Matcher:
    """A pattern prepared for matching at many nodes: everything that depends on the pattern alone is precomputed.

    Args:
        pattern: The pattern; its root is an operator, perhaps one of several or with optional operators around.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        # Where the root may match without its producer, only the whole knows whether the root's node is inside.
        self._contained = self_contained(pattern) if takes_producer(pattern) else frozenset()
        self._root_types = root_types(pattern)

    def match(self, graph: DataflowGraph, index: int) -> Match | Mismatch:
        """Match the pattern with its root at one node.

        Args:
            graph: The graph.
            index: The node whose output is the pattern's value.
        """
        op_type = graph.nodes[index].op_type
        if self._root_types is not None and op_type not in self._root_types:
            wanted = " or ".join(sorted(self._root_types))
            return Mismatch(reason=f"{graph.names[index]} is {op_type}, not {wanted}", nodes=0)
        attempt = Attempt(graph, self._contained)
        for value in graph.nodes[index].outputs:
            for state in attempt.whole_matches(self.pattern, value):
                if state.nodes >> index & 1:
                    return Match(
                        graph=graph,
                        root=index,
                        value=value,
                        nodes=state.nodes,
                        captures=state.first_captured,
                        bindings=state.bound,
                        _captured=state.captures,
                    )
        nothing = Mismatch(reason="the pattern has no operator", nodes=0)
        return nothing if attempt.furthest is None else attempt.furthest


def match(pattern: Pattern, graph: DataflowGraph, index: int) -> Match | Mismatch:
    """Match a pattern with its root at one node; to match many nodes, make one `Matcher`.

    Alternatives and operand orders are tried in order, with backtracking; the first match is returned.

    Args:
        pattern: The pattern; its root is an operator, an alternative of several, or wrapped in optional
            operators.
        graph: The graph.
        index: The node whose output is the pattern's value.
    """
    return Matcher(pattern).match(graph, index)


def match_model(pattern: Pattern | Matcher, model: onnx_ir.Model) -> Match | Mismatch:
    """Match a pattern with a whole model, so that a lowering reuses the pattern that found its function.

    The captures then identify, for example, the weight and the bias; the lowering needs no second analysis.

    Args:
        pattern: The pattern; or a matcher of it, which is cheaper when many models are matched.
        model: For example a `KernelFunction.model`.
    """
    graph = DataflowGraph(model)
    matcher = pattern if isinstance(pattern, Matcher) else Matcher(pattern)
    furthest = Mismatch(reason="the model has no operator", nodes=0)
    for index in reversed(range(len(graph))):
        found = matcher.match(graph, index)
        if isinstance(found, Mismatch):
            furthest = max(furthest, found, key=lambda each: each.nodes.bit_count())
        elif graph.needs_kernel & ~found.nodes == 0:
            return found
    return furthest
