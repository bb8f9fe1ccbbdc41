"""Classic operator fusion: join every node with its post-dominator where all paths between them allow it.

The algorithm is that of TVM's `FuseOps` (T. Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep
Learning", OSDI 2018, section 3; "Operator Fusion" in TVM's architecture guide), for ONNX graphs: they have no tuples,
so TVM's handling of the tuple that a concatenation reads is applied to the Concat itself.

It computes one partition, quickly, and keeps no alternatives; `CombineByPrimitivesRule` computes every intermediate
group, for a search to choose from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from collage_core.fusion.quantised import quantised_groups
from collage_core.fusion.sub_graph import SubGraph, inside_depth
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit, union_of
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.tensor_spec import ValueKind

_K = OpPatternKind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FuseLimits:
    """Limits on the size of a group; None is no limit.

    Attributes:
        max_nodes: Maximum number of nodes, views not counted. TVM's own limit is 256.
        max_depth: Maximum number of nodes on a path inside, views not counted.
        max_inputs: Maximum number of values read from outside, constants excluded.
    """

    max_nodes: int | None = 256
    max_depth: int | None = None
    max_inputs: int | None = None

    def __post_init__(self) -> None:
        if any(limit is not None and limit < 1 for limit in (self.max_nodes, self.max_depth, self.max_inputs)):
            raise ValueError(f"a limit is at least 1, or None: {self}")


def post_dominator_groups(graph: DataflowGraph, limits: FuseLimits | None = None) -> tuple[int, ...]:
    """Partition a graph into groups, each of which could be one loop nest with one result.

    Nodes are visited in order, three times. In each phase a node is joined with its immediate post-dominator and with
    everything between them if the kinds on all paths allow it:

    - phase 0: an anchor takes element-wise and broadcasting nodes after it, as long as its own result is read
      element by element; so two anchors are never in one group.
    - phase 1: index operators (transposing, slicing, ...) are joined with index operators and simpler nodes after
      them. This phase follows phase 0 so that anchors take precedence.
    - phase 2: the inputs of a Concat are joined with it, if the Concat's group holds nothing above injective.
    - in all phases but the last: an element-wise or broadcasting node goes into the injective node, the reduction, or
      the group of an anchor that follows it. A reduction starts no group: it is always the last of its group.

    Opaque and impure nodes, calls of functions marked as kernels, and quantised operators (which are never split) are
    alone. The producer of a graph output is never joined with its readers.

    Args:
        graph: The graph.
        limits: Limits on the size of groups; TVM's if None.

    Returns:
        Masks of disjoint sets that cover all nodes, views included, by lowest node.
    """
    fuser = _Fuser(graph, limits or FuseLimits())
    for phase in range(3):
        fuser.run(phase)
    return tuple(sorted(fuser.groups(), key=lambda nodes: nodes & -nodes))


class _Fuser:
    """Groups as a union-find structure over nodes."""

    def __init__(self, graph: DataflowGraph, limits: FuseLimits) -> None:
        self._graph = graph
        self._limits = limits
        self._parent = list(range(len(graph)))
        self._nodes = [1 << index for index in range(len(graph))]
        self._kind = [_own_kind(graph, index) for index in range(len(graph))]
        for index in iterate_bits(union_of(quantised_groups(graph))):
            self._kind[index] = _K.OPAQUE
        self._towards = _kinds_towards(graph)

    def groups(self) -> Iterator[int]:
        """Return the groups built so far."""
        return (self._nodes[index] for index, parent in enumerate(self._parent) if index == parent)

    def run(self, phase: int) -> None:
        """Visit every node once."""
        end = len(self._graph)
        for index, sink in enumerate(self._graph.post_dominators):
            if sink == end or self._kind[index] is _K.OPAQUE or self._root(index) == self._root(sink):
                continue
            allows = self._condition(index, sink, phase)
            if allows is None:
                continue
            between = self._between(index, sink, allows)
            if between is not None:
                self._join(index, sink, between)

    def _condition(self, index: int, sink: int, phase: int) -> Callable[[OpPatternKind, bool], bool] | None:
        """Return the predicate for the kinds of groups on the paths and at the sink.

        None if the node is not joined in this phase.
        """
        kind, towards = self._kind[index], self._towards[index]
        if (phase == 2) != _is_concat(self._graph, sink):
            return None
        if phase == 2:
            return (lambda on_path, is_sink: on_path <= _K.INJECTIVE) if kind <= _K.INJECTIVE else None
        if kind is _K.OUT_ELEMENTWISE_FUSABLE:
            if phase == 0 and towards is _K.ELEMENTWISE:
                return lambda on_path, is_sink: on_path <= _K.BROADCAST
        elif kind <= _K.BROADCAST:
            if towards <= _K.INJECTIVE or towards is _K.REDUCTION:
                most = _K.OUT_ELEMENTWISE_FUSABLE
                return lambda on_path, is_sink: on_path <= (most if is_sink else _K.INJECTIVE)
        elif kind is _K.INJECTIVE and phase == 1:
            return lambda on_path, is_sink: on_path <= _K.INJECTIVE
        return None

    def _between(self, index: int, sink: int, allows: Callable[[OpPatternKind, bool], bool]) -> int | None:
        """Return the nodes between a node and its post-dominator, both excluded; None if one may not be joined."""
        graph = self._graph
        seen = 0
        waiting = graph.successors[index]
        while waiting:
            node = lowest_bit(waiting)
            waiting &= waiting - 1
            if not allows(self._kind[self._root(node)], node == sink):
                return None
            if node != sink:
                seen |= 1 << node
                waiting |= graph.successors[node] & ~seen
        return seen

    def _join(self, index: int, sink: int, between: int) -> None:
        roots = {self._root(node) for node in (index, sink, *iterate_bits(between))}
        nodes = union_of(self._nodes[root] for root in roots)
        if not self._within_limits(nodes):
            return
        into = self._root(sink)
        self._kind[into] = max(self._kind[root] for root in roots)
        self._nodes[into] = nodes
        for root in roots:
            self._parent[root] = into

    def _within_limits(self, nodes: int) -> bool:
        graph, limits = self._graph, self._limits
        if limits.max_nodes is not None and (nodes & graph.needs_kernel).bit_count() > limits.max_nodes:
            return False
        if limits.max_depth is not None and inside_depth(graph, nodes) > limits.max_depth:
            return False
        return limits.max_inputs is None or len(SubGraph(graph, nodes).input_values) <= limits.max_inputs

    def _root(self, index: int) -> int:
        while self._parent[index] != index:
            self._parent[index] = index = self._parent[self._parent[index]]
        return index


def _own_kind(graph: DataflowGraph, index: int) -> OpPatternKind:
    if index in graph.compilers or not graph.pure[index]:
        return _K.OPAQUE
    return graph.kinds[index]


def _is_concat(graph: DataflowGraph, index: int) -> bool:
    return graph.nodes[index].op_type == "Concat" and graph.nodes[index].domain in ("", "ai.onnx")


def _kinds_towards(graph: DataflowGraph) -> list[OpPatternKind]:
    """Compute the largest kind of access on all paths from each node to its post-dominator.

    A broadcasting node reads an operand of its result's shape element-wise: a bias is broadcast, the operand it is
    added to is not.
    """
    end = len(graph)
    found = [_K.OPAQUE] * end
    for index in reversed(range(end)):
        sink = graph.post_dominators[index]
        if sink == end:
            continue
        largest = _K.ELEMENTWISE
        for reader in iterate_bits(graph.successors[index]):
            largest = max(largest, _reading(graph, index, reader))
            while reader != sink:  # every reader's own chain of post-dominators leads there
                largest = max(largest, found[reader])
                reader = graph.post_dominators[reader]
        found[index] = largest
    return found


def _reading(graph: DataflowGraph, index: int, reader: int) -> OpPatternKind:
    """Return the kind of access with which one node reads another's result."""
    kind = graph.kinds[reader]
    if kind is not _K.BROADCAST:
        return kind
    result = graph.spec(graph.nodes[reader].outputs[0])
    read = [value for value in graph.operands[reader] if value is not None and graph.producer(value) == index]
    same = all((spec := graph.spec(value)).kind is ValueKind.PLANNED and spec.shape == result.shape for value in read)
    return _K.ELEMENTWISE if same else _K.BROADCAST
