"""Give an optimised model an order of nodes that does not depend on addresses in memory.

ONNX Runtime's layout transformer inserts `ReorderOutput` nodes behind blocked (NCHWc) values. It takes these from an
unordered map whose keys are pointers (`NchwcTransformerImpl::Finalize` in nchwc_transformer.cc), so with two of them
their names and indices differ from run to run. Nodes are saved depth-first from the outputs, of several producers that
with the highest index first (`ReverseDFSFrom` in graph.cc), so whole branches change places with them. A build would
then be another than the one that was checked, and be checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_onnxruntime.kernel import BLOCKED_DOMAIN


def fix_order(model: onnx_ir.Model) -> bool:
    """Sort nodes as ONNX Runtime would if the `ReorderOutput` nodes were inserted in the order of what they write.

    Each of them is moved behind the node whose value it reads, and named after what it writes. They have the highest
    indices, so they are visited first; other nodes keep the order in which they are.

    Args:
        model: An optimised model; it is modified. Bodies of nodes stay as they are.

    Returns:
        Whether it has two such nodes or more; with fewer it is not modified.
    """
    if sum(map(_is_reorder, model.graph)) < 2:
        return False
    graph = DataflowGraph(model)
    written = {place: str(node.outputs[0].name) for place, node in enumerate(graph.nodes) if _is_reorder(node)}
    nodes = [graph.nodes[place] for place in _depth_first(graph, written)]
    members = set(nodes)
    nodes += [node for node in model.graph if node not in members]  # what no output depends on
    for place, name in written.items():
        graph.nodes[place].name = f"ReorderOutput_{name}"
    model.graph.remove(nodes)
    model.graph.extend(nodes)
    return True


def _is_reorder(node: onnx_ir.Node) -> bool:
    return (node.domain, node.op_type) == (BLOCKED_DOMAIN, "ReorderOutput")


def _depth_first(graph: DataflowGraph, written: Mapping[int, str]) -> list[int]:
    """Return all nodes of a graph, each behind those it reads.

    Args:
        graph: The graph.
        written: What each `ReorderOutput` node writes.
    """
    positions = {node: position for position, node in enumerate(graph.model.graph)}

    def last_first(places: Iterable[int]) -> list[int]:
        keys = {each: (each not in written, written.get(each, ""), positions[graph.nodes[each]]) for each in places}
        return sorted(keys, key=keys.__getitem__, reverse=True)

    found: dict[int, None] = {}
    to_visit = last_first(place for place, readers in enumerate(graph.successors) if not readers)
    while to_visit:
        unread = [place for place in iterate_bits(graph.predecessors[to_visit[-1]]) if place not in found]
        if unread:
            to_visit += last_first(unread)
            continue
        place = to_visit.pop()
        found.setdefault(place)
        for reader in reversed(last_first(iterate_bits(graph.successors[place]))):
            if reader in written:
                found.setdefault(reader)
    return list(found)
