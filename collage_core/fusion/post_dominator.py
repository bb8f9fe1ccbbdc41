"""Classic operator fusion: every node is joined with its post-dominator where all paths between them allow it.

The algorithm is that of TVM's `FuseOps` (T. Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep
Learning", OSDI 2018, section 3; "Operator Fusion" in TVM's architecture guide), for graphs of ONNX: there are no
tuples, so that what TVM does for the tuple a concatenate reads is done for the Concat itself.

It makes one partition, quickly, and keeps nothing else; `CombineByPrimitivesRule` makes every group it could have made
on the way, for a search to choose from.
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
    """How large a group may become; None is no limit.

    Attributes:
        max_nodes: Most nodes, views not counted. TVM's own limit is 256.
        max_depth: Most nodes on a path inside, views not counted.
        max_inputs: Most values read from outside, constants excluded.
    """

    max_nodes: int | None = 256
    max_depth: int | None = None
    max_inputs: int | None = None

    def __post_init__(self) -> None:
        if any(limit is not None and limit < 1 for limit in (self.max_nodes, self.max_depth, self.max_inputs)):
            raise ValueError(f"a limit is at least 1, or None: {self}")


def post_dominator_groups(graph: DataflowGraph, limits: FuseLimits | None = None) -> tuple[int, ...]:
    """Partitions a graph into groups, each of which could be one loop nest with one result.

    Nodes are visited in order, three times. In each phase a node is joined with its immediate post-dominator and with
    everything between them if the kinds on all paths allow it:

    - phase 0: an anchor takes element-wise and broadcasting nodes after it, as long as its own result is read
      element by element; so two anchors are never in one group.
    - phase 1: index work (transposing, slicing, ...) is joined with index work and simpler nodes after it. Later than
      anchors, so that these come first.
    - phase 2: what a Concat reads is joined with it, if nothing in the Concat's group is more than index work.
    - in all phases but the last: an element-wise or broadcasting node goes into the injective node, the reduction, or
      the group of an anchor that follows it. A reduction starts nothing: it is only ever the last of its group.

    Opaque and impure nodes, calls of functions marked as kernels, and quantised operators (which are never split) are
    alone. So is the producer of a graph output with respect to what reads it.

    Args:
        graph: The graph.
        limits: How large groups may become; TVM's if None.

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
        """The groups made so far."""
        return (self._nodes[index] for index, parent in enumerate(self._parent) if index == parent)

    def run(self, phase: int) -> None:
        """Visits every node once."""
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
        """What groups on the way, and at its end, must be of; None if the node is not joined in this phase."""
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
        """Nodes on the paths from a node to its post-dominator, both excluded; None if one does not allow it."""
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
    """By node, the largest kind of reading on all paths from it to its post-dominator.

    A node that broadcasts reads element by element what has the shape of its result: a bias is broadcast, what it is
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
    """How one node reads what another produces."""
    kind = graph.kinds[reader]
    if kind is not _K.BROADCAST:
        return kind
    result = graph.spec(graph.nodes[reader].outputs[0])
    read = [value for value in graph.operands[reader] if value is not None and graph.producer(value) == index]
    same = all((spec := graph.spec(value)).kind is ValueKind.PLANNED and spec.shape == result.shape for value in read)
    return _K.ELEMENTWISE if same else _K.BROADCAST
