"""Sub-graphs: sets of nodes with their inside and outside."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import onnx_ir

from collage_core.contract.support import Supported, Unsupported
from collage_core.ir.graph.canonical import Composite, overlap, structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import extract
from collage_core.ir.graph.footprint import bytes_beside
from collage_core.ir.graph.masks import hashable, iterate_bits, mask_of, union_of
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.operators.quantising import Int8Product
from collage_core.ir.values.content import constant_of


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SubGraphConfig:
    """Validity limits of sub-graphs; None is no limit.

    Attributes:
        max_exits: Maximum number of exit nodes.
        max_depth: Longest inside path, in nodes that need a kernel.
        max_inputs: Maximum number of values read from outside, constants excluded.
        allow_taps: Whether an exit node may also feed an inside node.
    """

    max_exits: int | None = None
    max_depth: int | None = None
    max_inputs: int | None = None
    allow_taps: bool = True


@dataclasses.dataclass(frozen=True)
class SubGraph:
    """A set of nodes of one graph, with its inside and outside. No model is built: thousands are alive at once.

    Attributes:
        graph: The graph.
        nodes: Mask of the nodes inside.
        label: Name of the pattern that matched the whole, or `""`.
        composites: Labelled parts inside.
        attributes: Result of the pattern's `attrs_getter`, as sorted pairs.
        int8: Products inside whose operands or weights are quantised, in the graph's order; then it has no labels.
    """

    graph: DataflowGraph = dataclasses.field(repr=False)
    nodes: int
    label: str = ""
    composites: tuple[Composite, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    int8: tuple[Int8Product, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.nodes <= self.graph.all_mask:
            raise ValueError(f"a sub-graph has at least one of the graph's {len(self.graph)} nodes")
        if self.int8 and (self.label or self.composites):
            raise ValueError("what a pattern matched is not quantised: its kernel is for the operators as they are")
        if any(not self.nodes >> product.node & 1 for product in self.int8):
            raise ValueError("only products inside a sub-graph are quantised")

    def __hash__(self) -> int:
        return hash((hashable(self.nodes), self.label, self.composites, self.attributes, self.int8))

    @cached_property
    def form(self) -> str:
        """What distinguishes it from others of the same nodes: its label, labelled parts, or quantised products."""
        if self.composites:
            parts = sorted(self.composites, key=lambda part: part.nodes)
            return f"{self.label}[{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}]"
        if not self.int8:
            return self.label
        return f"int8-{hashlib.sha256(repr(self.int8).encode()).hexdigest()[:16]}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in the graph's order."""
        return tuple(self.graph.names[index] for index in iterate_bits(self.nodes))

    @cached_property
    def kind(self) -> OpPatternKind:
        """The largest kind inside; views, which do not change bytes, count only if there is nothing else."""
        graph, kernels = self.graph, self.nodes & self.graph.needs_kernel
        return max(graph.kinds[index] for index in iterate_bits(kernels or self.nodes))

    @cached_property
    def entries(self) -> int:
        """Inside nodes that read a value from outside, or read nothing; constants do not count."""
        mask = 0
        for index in iterate_bits(self.nodes):
            read = [value for value in self.graph.operands[index] if value is not None and constant_of(value) is None]
            if not read or any(self._is_outside(value) for value in read):
                mask |= 1 << index
        return mask

    @cached_property
    def exits(self) -> int:
        """Inside nodes used outside or producing a graph output."""
        graph, nodes = self.graph, self.nodes
        used_outside = mask_of(index for index in iterate_bits(nodes) if graph.successors[index] & ~nodes)
        return used_outside | nodes & graph.outputs_mask

    @cached_property
    def inputs(self) -> int:
        """Outside nodes whose values are read inside."""
        return union_of(self.graph.predecessors[index] for index in iterate_bits(self.nodes)) & ~self.nodes

    @cached_property
    def outputs(self) -> int:
        """Outside nodes that read values produced inside."""
        return union_of(self.graph.successors[index] for index in iterate_bits(self.nodes)) & ~self.nodes

    @cached_property
    def input_values(self) -> frozenset[onnx_ir.Value]:
        """Values read from outside, constants excluded."""
        return frozenset(
            value
            for value in self.graph.read_values(iterate_bits(self.nodes))
            if constant_of(value) is None and self._is_outside(value)
        )

    @cached_property
    def ancestors(self) -> int:
        """Outside nodes it depends on."""
        return self.graph.ancestors_of(self.nodes)

    @cached_property
    def descendants(self) -> int:
        """Outside nodes that depend on it."""
        return self.graph.descendants_of(self.nodes)

    @cached_property
    def depth(self) -> int:
        """Nodes that need a kernel on the longest inside path."""
        return inside_depth(self.graph, self.nodes)

    @cached_property
    def bytes_beside(self) -> int:
        """Memory that the rest of the model touches between two runs of a kernel of these nodes; 0 if nothing is."""
        return bytes_beside(self.graph, self.nodes)

    @property
    def is_convex(self) -> bool:
        """Whether no path leaves the sub-graph and re-enters it."""
        return self.ancestors & self.descendants == 0

    @property
    def has_taps(self) -> bool:
        """Whether an exit node also feeds an inside node."""
        return any(self.graph.successors[index] & self.nodes for index in iterate_bits(self.exits))

    @cached_property
    def structural_hash(self) -> str:
        """Hash shared by all equal candidates, label and quantised products included.

        A call of a marked function is hashed by its body. Ranges are not part of it: like weights, they are numbers.
        """
        if not (self.composites or self.int8) and any(self.nodes >> index & 1 for index in self.graph.compilers):
            inlined = DataflowGraph(extract(self.graph, self.nodes, name="inlined").model)
            return SubGraph(inlined, inlined.all_mask, self.label, attributes=self.attributes).structural_hash
        parts = self.composites
        if self.label:
            parts = (*parts, Composite(self.label, self.nodes, self.attributes))
        parts = (*parts, *(Composite(product.form, 1 << product.node) for product in self.int8))
        return structural_hash(self.graph, self.nodes, parts)

    def validity(self, config: SubGraphConfig) -> Supported | Unsupported:
        """Check whether the sub-graph can be one kernel under `config`, cheapest checks first."""
        if self.nodes & self.graph.needs_kernel == 0:
            return Unsupported("nothing in it needs a kernel")
        if self.graph.completed(self.nodes) != self.nodes:
            return Unsupported("a view lies on its border or is missing between two of its nodes")
        if fault := overlap(self.composites, self.nodes):
            return Unsupported(fault)
        exits = self.exits.bit_count()
        if config.max_exits is not None and exits > config.max_exits:
            return Unsupported(f"{exits} exits, at most {config.max_exits} are allowed")
        if not config.allow_taps and self.has_taps:
            return Unsupported("a value used outside is also used inside")
        if config.max_inputs is not None and len(self.input_values) > config.max_inputs:
            return Unsupported(f"{len(self.input_values)} inputs, at most {config.max_inputs} are allowed")
        if config.max_depth is not None and self.depth > config.max_depth:
            return Unsupported(f"depth {self.depth}, at most {config.max_depth} is allowed")
        # With one exit, what came back in would lead to that exit again: every node leads to an output of the graph.
        if exits > 1 and not self.is_convex:
            return Unsupported("a value flows out of it and back in")
        return Supported()

    def touches(self, other: SubGraph) -> bool:
        """Return whether an output of one is an entry of the other and their union is convex."""
        if self.nodes & other.nodes or not (self.outputs & other.entries or other.outputs & self.entries):
            return False
        return self.graph.is_convex(self.nodes | other.nodes)

    def union(self, *others: SubGraph) -> SubGraph:
        """Unite sub-graphs, with the views between them; labelled sub-graphs become parts.

        Raises:
            ValueError: If they overlap or belong to different graphs.
        """
        nodes, parts = self.nodes, self.as_parts()
        for other in others:
            if self.graph is not other.graph or nodes & other.nodes:
                raise ValueError("only disjoint sub-graphs of one graph have a union")
            nodes |= other.nodes
            parts += other.as_parts()
        return SubGraph(self.graph, self.graph.completed(nodes) | nodes, "", parts)

    def as_parts(self) -> tuple[Composite, ...]:
        """Return the labelled parts contributed to a larger sub-graph: the sub-graph itself if it is labelled."""
        if not self.label:
            return self.composites
        return (Composite(self.label, self.nodes, self.attributes, self.composites),)

    def labelled(self, label: str, attributes: Mapping[str, str] | None = None) -> SubGraph:
        """Return the same nodes with a label; one that has a label already becomes the only part of it."""
        own = tuple(sorted((attributes or {}).items()))
        return dataclasses.replace(self, label=label, attributes=own, composites=self.as_parts())

    def completed(self) -> SubGraph | None:
        """Drop views on the border and add views between inside nodes; return None if nothing is left."""
        nodes = self.graph.completed(self.nodes)
        if nodes == self.nodes:
            return self
        kept = tuple(found for part in self.composites if (found := part.within(nodes)) is not None)
        return dataclasses.replace(self, nodes=nodes, composites=kept) if nodes else None

    def _is_outside(self, value: onnx_ir.Value) -> bool:
        producer = self.graph.producer(value)
        return producer is None or not self.nodes >> producer & 1


def labelled_parts(labelled: Sequence[SubGraph], nodes: int) -> tuple[Composite, ...]:
    """Select disjoint labelled candidates inside a set of nodes, in priority order."""
    parts: list[Composite] = []
    free = nodes
    for sub_graph in labelled:
        if not sub_graph.nodes & ~free:
            parts.extend(sub_graph.as_parts())
            free &= ~sub_graph.nodes
    return tuple(parts)


def inside_depth(graph: DataflowGraph, nodes: int) -> int:
    """Return the number of nodes that need a kernel on the longest path inside `nodes`; views do not count."""
    kernels = nodes & graph.needs_kernel
    depth: dict[int, int] = {}
    for index in iterate_bits(kernels):
        above = graph.kernel_predecessors[index] & kernels
        depth[index] = 1 + max((depth[before] for before in iterate_bits(above)), default=0)
    return max(depth.values(), default=0)
