"""Quantised operators: nodes that must not be split across kernels.

A model in QDQ form marks an operator as low-precision by a DequantizeLinear on its inputs and a QuantizeLinear on its
outputs, and toolchains recognise it by these neighbours (node units in ONNX Runtime, low-precision transformations in
OpenVINO, explicit quantisation in TensorRT). If split, it is computed in float32 with a pass over memory for each
conversion: slower, and not the computation that was quantised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of, union_of
from collage_core.ir.operators.quantised import is_dequantize, is_quantize
from collage_core.ir.values.content import constant_of


def quantised_groups(graph: DataflowGraph) -> tuple[int, ...]:
    """Return the groups of nodes that no kernel should split: the graph's quantised operators.

    A group is a set of nodes connected by values that are internal to a quantised operator, so that no kernel should
    end there. Those are the results of

    - a DequantizeLinear, also seen through views;
    - an operator that reads such a result, and of element-wise operators after it, if nothing but a QuantizeLinear
      reads it, or nothing but further element-wise operators of which that is true;
    - operators computed from quantised constants alone: weights.

    The narrow tensor between a QuantizeLinear and a DequantizeLinear is not internal: kernels end there. Groups that
    could not run in sequence are merged into one, together with the nodes between them.

    Args:
        graph: The graph.

    Returns:
        Disjoint masks of nodes that need a kernel, at least two in each, in the order of their lowest nodes. The
        groups, and the other nodes one by one, could be kernels that run in sequence.
    """
    if not any(is_quantize(node) or is_dequantize(node) for node in graph.nodes):
        return ()
    ties = (1 << index | graph.successors[index] for index in iterate_bits(_inner(graph)))
    kernels = [group & graph.needs_kernel for group in _united(ties)]
    groups = _without_circles(graph, [group for group in kernels if group])
    marked = mask_of(graph.compilers)
    kept = [group for group in groups if group.bit_count() > 1 and not group & marked]
    return tuple(sorted(kept, key=lambda group: group & -group))


def is_split(groups: Iterable[int], nodes: int) -> bool:
    """Return whether a set of nodes contains part of a group without the rest.

    Examples:
        >>> is_split([0b0110], 0b0011), is_split([0b0110], 0b0111), is_split([0b0110], 0b1001)
        (True, False, False)
    """
    return any(group & nodes and group & ~nodes for group in groups)


def grown(graph: DataflowGraph, groups: Sequence[int], nodes: int) -> int:
    """Grow a set of nodes to the smallest convex set, with the views inside, that splits no group."""
    before = 0
    while nodes != before:
        before = nodes
        for group in groups:
            if group & nodes:
                nodes |= group
        nodes = graph.completed(nodes | graph.ancestors_of(nodes) & graph.descendants_of(nodes))
    return nodes


def _inner(graph: DataflowGraph) -> int:
    """Return the mask of nodes whose results are internal to a quantised operator."""
    nodes = range(len(graph))
    wide = _dequantised(graph)
    narrows = mask_of(index for index in nodes if is_quantize(graph.nodes[index]))
    through = graph.host_mask | mask_of(index for index in nodes if graph.kinds[index].is_epilogue)
    through &= ~narrows & ~mask_of(index for index in nodes if is_dequantize(graph.nodes[index]))
    quantised = 0  # what reads such a result, and element-wise work after it
    for index in iterate_bits(graph.all_mask & ~narrows):
        before = graph.predecessors[index]
        if before & wide or (through >> index & 1 and before & quantised):
            quantised |= 1 << index
    ending = 0  # what is read on the way to a QuantizeLinear only
    for index in reversed(nodes):
        after = graph.successors[index]
        if after and not after & ~(narrows | (through & ending)) and not graph.outputs_mask >> index & 1:
            ending |= 1 << index
    marked = mask_of(graph.compilers)  # what calls a function marked as a kernel is a kernel of its own
    inner = (wide | (quantised & ending) | _weights(graph)) & ~marked
    return mask_of(index for index in iterate_bits(inner) if not graph.successors[index] & marked)


def _dequantised(graph: DataflowGraph) -> int:
    """Return the mask of DequantizeLinear nodes and of views on their results."""
    found = 0
    for index, node in enumerate(graph.nodes):
        if is_dequantize(node) or (graph.is_host(index) and graph.predecessors[index] & found):
            found |= 1 << index
    return found


def _weights(graph: DataflowGraph) -> int:
    """Return the mask of nodes computed from quantised constants alone."""
    found = 0
    for index, node in enumerate(graph.nodes):
        made = [value for value in graph.operands[index] if value is not None and constant_of(value) is None]
        producers = [graph.producer(value) for value in made]
        if all(each is not None and found >> each & 1 for each in producers) and (
            producers or is_quantize(node) or is_dequantize(node)
        ):
            found |= 1 << index
    return found


def _united(ties: Iterable[int]) -> list[int]:
    """Unite sets that share a node."""
    number_of: dict[int, int] = {}
    groups: dict[int, int] = {}
    for number, tie in enumerate(ties):
        united = tie
        for other in {number_of[index] for index in iterate_bits(tie) if index in number_of}:
            united |= groups.pop(other)
        groups[number] = united
        number_of.update(dict.fromkeys(iterate_bits(united), number))
    return list(groups.values())


def _without_circles(graph: DataflowGraph, groups: Sequence[int]) -> list[int]:
    """Merge groups that depend on each other: strongly connected components, by Kosaraju's algorithm."""
    units = [*groups, *(1 << index for index in iterate_bits(graph.needs_kernel & ~union_of(groups)))]
    unit_of = {index: number for number, unit in enumerate(units) for index in iterate_bits(unit)}

    def neighbours(masks: Sequence[int]) -> list[list[int]]:
        around = (union_of(masks[index] for index in iterate_bits(unit)) for unit in units)
        return [sorted({unit_of[index] for index in iterate_bits(each)}) for each in around]

    after, before = neighbours(graph.kernel_successors), neighbours(graph.kernel_predecessors)
    finished: list[int] = []
    seen: set[int] = set()
    for start in range(len(units)):
        finished.extend(_finished(start, after, seen))
    seen = set()
    components = (_finished(start, before, seen) for start in reversed(finished))
    return [union_of(units[number] for number in component) for component in components]


def _finished(start: int, edges: Sequence[Sequence[int]], seen: set[int]) -> list[int]:
    """Return the unseen units reachable from a unit in post-order: each follows all units reachable from it."""
    if start in seen:
        return []
    seen.add(start)
    order: list[int] = []
    stack = [(start, iter(edges[start]))]
    while stack:
        number, pending = stack[-1]
        following = next((each for each in pending if each not in seen), None)
        if following is None:
            order.append(number)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges[following])))
    return order
