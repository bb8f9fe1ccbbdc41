"""Partition a whole graph into kernels."""

from __future__ import annotations

import dataclasses
import heapq
from functools import cached_property

from collage_core.errors import PartitioningError
from collage_core.fusion.spec import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit, union_of


@dataclasses.dataclass(frozen=True)
class Partitioning:
    """Disjoint kernels that cover every node that needs one and can be ordered for execution.

    Attributes:
        graph: The graph.
        kernels: The kernels, in any order; `order` has them in execution order.

    Raises:
        PartitioningError: If two kernels overlap, a node is uncovered, a view lies on a kernel's border, or
            kernels depend on each other in a cycle.
    """

    graph: DataflowGraph = dataclasses.field(repr=False)
    kernels: tuple[CandidateKernel, ...]

    def __post_init__(self) -> None:
        graph = self.graph
        covered = 0
        for kernel in self.kernels:
            sub_graph = kernel.sub_graph
            if sub_graph.graph is not graph:
                raise PartitioningError("a kernel belongs to another graph")
            if sub_graph.nodes & covered:
                raise PartitioningError(f"two kernels hold {self._named(sub_graph.nodes & covered)}")
            if graph.completed(sub_graph.nodes) != sub_graph.nodes:
                raise PartitioningError(
                    f"the kernel of {self._named(sub_graph.nodes)} has a view on its border, or lacks one inside"
                )
            covered |= sub_graph.nodes
        if graph.needs_kernel & ~covered:
            raise PartitioningError(f"no kernel holds {self._named(graph.needs_kernel & ~covered)}")
        _ = self.order

    @cached_property
    def order(self) -> tuple[CandidateKernel | int, ...]:
        """Kernels, and indices of the host nodes outside of them, in execution order.

        Raises:
            PartitioningError: If there is none.
        """
        graph = self.graph
        units: list[tuple[int, CandidateKernel | int]] = [(k.sub_graph.nodes, k) for k in self.kernels]
        inside = union_of(nodes for nodes, _ in units)
        units.extend((1 << index, index) for index in iterate_bits(graph.all_mask & ~inside))
        unit_of = [0] * len(graph)
        for number, (nodes, _) in enumerate(units):
            for index in iterate_bits(nodes):
                unit_of[index] = number
        waiting = []
        readers: list[set[int]] = [set() for _ in units]
        for number, (nodes, _) in enumerate(units):
            before = union_of(graph.predecessors[index] for index in iterate_bits(nodes))
            needed = {unit_of[index] for index in iterate_bits(before & ~nodes)}
            waiting.append(len(needed))
            for other in needed:
                readers[other].add(number)
        # Lowest node first: deterministic, and close to the graph's own order, which keeps few tensors alive.
        ready = [(lowest_bit(units[number][0]), number) for number, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        order: list[CandidateKernel | int] = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(units[number][1])
            for reader in readers[number]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (lowest_bit(units[reader][0]), reader))
        if len(order) < len(units):
            stuck = [units[number][0] for number, count in enumerate(waiting) if count]
            named = "; ".join(self._named(nodes) for nodes in stuck[:4])
            raise PartitioningError(f"kernels wait for each other in a circle, among them those of {named}")
        return tuple(order)

    def _named(self, nodes: int) -> str:
        names = [repr(self.graph.names[index]) for index in iterate_bits(nodes)]
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
