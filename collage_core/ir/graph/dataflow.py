"""Index a graph: numbered nodes, and their dependencies as bit masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import onnx_ir

from collage_core.ir.graph.call_kind import kind_of_node
from collage_core.ir.graph.masks import iterate_bits, mask_of, union_of
from collage_core.ir.graph.metadata_keys import COMPILER_METADATA, PRIMITIVE_METADATA
from collage_core.ir.graph.signature import node_signature
from collage_core.ir.graph.walk import (
    bodies,
    captured_values,
    depth_first,
    is_pure_node,
    may_read_float32,
    unique_names,
)
from collage_core.ir.operators.op_kind import OpPatternKind, known_kind
from collage_core.ir.operators.value_bounds import infer_bounds, spec_of
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import size_symbols, typical_sizes
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


class DataflowGraph:
    """The main graph of a prepared model, its nodes numbered in topological order.

    The order is depth first from the graph's outputs, so that the nodes of one branch are neighbours and a run
    of consecutive numbers is a meaningful region; a DequantizeLinear is placed next to its reader. Sets of
    nodes are plain integers, bit i standing for node i. Constants are not nodes, and nodes that no output
    depends on are left out. The model is not changed, and must not be changed while the index is in use.

    Args:
        model: A prepared model: shapes inferred, constants in initializers.

    Attributes:
        model: The model.
        nodes: Its nodes in topological order.
        names: Unique name of each node: its own, made unique where the model repeats or omits it.
        operands: Values each node reads, absent ones included as None; values captured by its bodies come last.
        predecessors: Mask of the nodes each node reads from.
        successors: Mask of the nodes that read from each node.
        outputs_mask: Mask of the nodes that produce graph outputs.
        all_mask: Mask of all nodes.

    Examples:
        >>> DataflowGraph(onnx_ir.from_onnx_text('''
        ... <ir_version: 10, opset_import: ["" : 21]>
        ... g (float[2] x) => (float[2] y) { a = Relu(x)  b = Exp(a)  y = Add(b, a) }''')).ancestors
        (0, 1, 3)
    """

    def __init__(self, model: onnx_ir.Model) -> None:
        self.model = model
        graph = model.graph
        captured = {node: captured_values(node) for node in graph if any(True for _ in bodies(node))}
        members = set(graph)
        self.nodes: tuple[onnx_ir.Node, ...] = depth_first(graph, members, captured)
        self.names: tuple[str, ...] = unique_names(self.nodes)
        self.operands: tuple[tuple[onnx_ir.Value | None, ...], ...] = tuple(
            tuple(node.inputs) + captured.get(node, ()) for node in self.nodes
        )
        self._index: dict[onnx_ir.Node, int] = {node: index for index, node in enumerate(self.nodes)}
        self._users: dict[onnx_ir.Value, int] = {}
        predecessors = [0] * len(self.nodes)
        successors = [0] * len(self.nodes)
        for index, operands in enumerate(self.operands):
            for value in operands:
                if value is None:
                    continue
                self._users[value] = self._users.get(value, 0) | 1 << index
                producer = self.producer(value)
                if producer is not None:
                    predecessors[index] |= 1 << producer
                    successors[producer] |= 1 << index
        self.predecessors: tuple[int, ...] = tuple(predecessors)
        self.successors: tuple[int, ...] = tuple(successors)
        self._graph_outputs = frozenset(graph.outputs)
        self.all_mask: int = (1 << len(self.nodes)) - 1
        producers = (self.producer(value) for value in graph.outputs)
        self.outputs_mask: int = mask_of(index for index in producers if index is not None)
        self._specs: dict[onnx_ir.Value, TensorSpec] = {}
        self._signatures: list[str | None] = [None] * len(self.nodes)
        self._float32_operators: dict[frozenset[str], int] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    # Values

    def producer(self, value: onnx_ir.Value) -> int | None:
        """Return the index of the node that produces `value`; None for graph inputs and constants."""
        node = value.producer()
        return None if node is None else self._index.get(node)

    def users(self, value: onnx_ir.Value) -> int:
        """Return the mask of nodes that read `value`, in their bodies included."""
        return self._users.get(value, 0)

    def is_graph_output(self, value: onnx_ir.Value) -> bool:
        """Return whether `value` is an output of the whole graph."""
        return value in self._graph_outputs

    @cached_property
    def _bounds(self) -> dict[onnx_ir.Value, tuple[int, ...]]:
        return infer_bounds(self.nodes)

    @cached_property
    def weights_bytes(self) -> int:
        """Size of all weights of the model, each counted once."""
        constants = [value.const_value for value in self.model.graph.initializers.values()]
        return sum({id(tensor): tensor.nbytes for tensor in constants if tensor is not None}.values())

    def spec(self, value: onnx_ir.Value) -> TensorSpec:
        """Return the spec of a value of this graph."""
        known = self._specs.get(value)
        if known is None:
            known = self._specs[value] = spec_of(value, self._bounds, self.sizes)
        return known

    # Nodes

    def index_of(self, node_name: str) -> int:
        """Return the index of the node with a name in `names`.

        Raises:
            KeyError: If there is none.
        """
        return self._by_name[node_name]

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def version(self, index: int) -> int:
        """Return the opset version of a node's domain."""
        node = self.nodes[index]
        return node.version or self.model.opset_imports.get(node.domain, 0)

    def signature(self, index: int) -> str:
        """Return the hash of one node without its wiring; see `structural_hash`."""
        known = self._signatures[index]
        if known is None:
            known = self._signatures[index] = node_signature(
                self.nodes[index], self.operands[index], self.model, self.spec
            )
        return known

    @cached_property
    def kinds(self) -> tuple[OpPatternKind, ...]:
        """Kind of each node; OPAQUE for a call of a function already marked as one kernel, which is left unchanged."""
        calls: dict[str, OpPatternKind] = {}
        found = []
        for index, node in enumerate(self.nodes):
            if index in self.compilers:
                found.append(OpPatternKind.OPAQUE)
            elif known_kind(node.op_type, node.domain) is not None:
                found.append(kind_of_node(node, self.model, self.spec))
            else:  # equal calls have equal bodies, and taking a call apart costs as much as a thousand look-ups
                key = self.signature(index)
                if key not in calls:
                    calls[key] = kind_of_node(node, self.model, self.spec)
                found.append(calls[key])
        return tuple(found)

    @cached_property
    def pure(self) -> tuple[bool, ...]:
        """Whether each node is pure, including its bodies."""
        return tuple(map(is_pure_node, self.nodes))

    @cached_property
    def compilers(self) -> dict[int, str]:
        """Toolchain of each call of a function already marked as one kernel, by node index."""
        found = {}
        for index, node in enumerate(self.nodes):
            function = self.model.functions.get(node.op_identifier())
            if function is not None and PRIMITIVE_METADATA in function.metadata_props:
                found[index] = function.metadata_props.get(COMPILER_METADATA, "")
        return found

    @cached_property
    def sizes(self) -> dict[str, SizeRange]:
        """Sizes of each symbol in the shapes of the model's inputs; none where all are static."""
        return size_symbols(self.model.graph.inputs)

    @cached_property
    def typical_sizes(self) -> dict[str, int]:
        """The typical size of each of these symbols."""
        return typical_sizes(self.sizes)

    @property
    def end_sizes(self) -> list[dict[str, int]]:
        """Sizes of these symbols at both ends of their ranges; none where all are static or typical sizes only."""
        least = {name: each.least for name, each in self.sizes.items()}
        most = {name: each.most for name, each in self.sizes.items()}
        return [each for each in (least, most) if each != self.typical_sizes]

    @cached_property
    def data_dependent_mask(self) -> int:
        """Nodes whose output shape, or amount of work, depends on the values of their inputs."""
        mask = 0
        for index, node in enumerate(self.nodes):
            unplanned = any(not self.spec(value).has_known_shape for value in node.outputs if value.name)
            if unplanned or node.op_type in ("If", "Loop", "NonMaxSuppression"):
                mask |= 1 << index
        return mask

    def float32_operators(self, operators: frozenset[str]) -> int:
        """Return the mask of nodes in which one of these operators may read float32.

        Bodies of nodes and of the functions they call are included. The worst case is assumed inside such bodies, where
        types are not inferred, and for operators outside ONNX's own domains, whose behaviour is unknown.

        Args:
            operators: Names of operators of the standard.
        """
        known = self._float32_operators.get(operators)
        if known is None:
            known = mask_of(
                index for index, node in enumerate(self.nodes) if may_read_float32(node, operators, self.model)
            )
            self._float32_operators[operators] = known
        return known

    # Dependencies

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Mask of the nodes each node depends on, itself excluded."""
        masks: list[int] = []
        for before in self.predecessors:
            masks.append(before | union_of(masks[index] for index in iterate_bits(before)))
        return tuple(masks)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Mask of the nodes that depend on each node, itself excluded."""
        masks = [0] * len(self.nodes)
        for index in reversed(range(len(self.nodes))):
            after = self.successors[index]
            masks[index] = after | union_of(masks[later] for later in iterate_bits(after))
        return tuple(masks)

    def ancestors_of(self, nodes: int) -> int:
        """Return the nodes outside `nodes` that it depends on."""
        return union_of(self.ancestors[index] for index in iterate_bits(nodes)) & ~nodes

    def descendants_of(self, nodes: int) -> int:
        """Return the nodes outside `nodes` that depend on it."""
        return union_of(self.descendants[index] for index in iterate_bits(nodes)) & ~nodes

    def is_convex(self, nodes: int) -> bool:
        """Return whether `nodes` is convex: no path leaves it and re-enters it."""
        return self.ancestors_of(nodes) & self.descendants_of(nodes) == 0

    @cached_property
    def post_dominators(self) -> tuple[int, ...]:
        """Immediate post-dominator of each node: the nearest node on every path to an output; `len(self)` if none."""
        end = len(self.nodes)
        found = [end] * (end + 1)
        depth = [0] * (end + 1)
        for index in reversed(range(end)):
            reaches_end = bool(self.outputs_mask >> index & 1) or not self.successors[index]
            following = list(iterate_bits(self.successors[index])) + [end] * reaches_end
            found[index] = _meet(following, found, depth)
            depth[index] = depth[found[index]] + 1
        return tuple(found[:end])

    # Host work

    @cached_property
    def host_mask(self) -> int:
        """Nodes that need no kernel: views, whose output has the same bytes as the input under another static shape."""
        return mask_of(index for index, node in enumerate(self.nodes) if self._is_view(node))

    def _is_view(self, node: onnx_ir.Node) -> bool:
        if node.domain not in ("", "ai.onnx") or node.op_type not in _VIEWS:
            return False
        data, *parameters = node.inputs
        if data is None or any(value is not None and constant_of(value) is None for value in parameters):
            return False
        return self.spec(data).kind is self.spec(node.outputs[0]).kind is ValueKind.PLANNED

    def is_host(self, index: int) -> bool:
        """Return whether a node needs no kernel."""
        return bool(self.host_mask >> index & 1)

    @cached_property
    def needs_kernel(self) -> int:
        """Mask of all nodes except host nodes: the nodes that a partitioning has to cover."""
        return self.all_mask & ~self.host_mask

    @cached_property
    def _views_after(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """Views on the outputs of each kernel node, each with the mask of kernel nodes that read through it.

        Views have one data input, so every view belongs to one node.
        """
        through = [0] * len(self.nodes)
        root: list[int | None] = [None] * len(self.nodes)
        for index in iterate_bits(self.host_mask):
            before = self.predecessors[index]
            if before:
                origin = before.bit_length() - 1
                root[index] = root[origin] if self.is_host(origin) else origin
        for index in reversed(list(iterate_bits(self.host_mask))):
            through[index] |= self.successors[index] & self.needs_kernel
            for after in iterate_bits(self.successors[index] & self.host_mask):
                through[index] |= through[after]
        found: dict[int, list[tuple[int, int]]] = {}
        for index in iterate_bits(self.host_mask):
            origin_or_none = root[index]
            if origin_or_none is not None:
                found.setdefault(origin_or_none, []).append((index, through[index]))
        return {origin: tuple(views) for origin, views in found.items()}

    @cached_property
    def _viewed(self) -> int:
        return mask_of(self._views_after)

    def completed(self, nodes: int) -> int:
        """Return the kernel nodes of `nodes` with exactly the views that lie between two of them.

        Views at the border stay outside, so a view is never in two disjoint completed sets, and the nodes of a
        candidate are determined by the kernel nodes it covers.
        """
        nodes &= self.needs_kernel
        result = nodes
        for index in iterate_bits(nodes & self._viewed):
            for view, readers in self._views_after[index]:
                if readers & nodes:
                    result |= 1 << view
        return result

    @cached_property
    def kernel_successors(self) -> tuple[int, ...]:
        """Mask of the kernel nodes that read each kernel node's outputs, directly or through views."""
        masks = []
        for index, after in enumerate(self.successors):
            through = union_of(readers for _, readers in self._views_after.get(index, ()))
            masks.append(after & self.needs_kernel | through)
        return tuple(masks)

    @cached_property
    def kernel_predecessors(self) -> tuple[int, ...]:
        """The inverse of `kernel_successors`."""
        masks = [0] * len(self.nodes)
        for index in iterate_bits(self.needs_kernel):
            for after in iterate_bits(self.kernel_successors[index]):
                masks[after] |= 1 << index
        return tuple(masks)

    # Borders of a set of nodes

    def read_values(self, nodes: Iterable[int]) -> Iterator[onnx_ir.Value]:
        """Yield the values that nodes read, once per read."""
        for index in nodes:
            for value in self.operands[index]:
                if value is not None:
                    yield value

    def is_exported(self, value: onnx_ir.Value, nodes: int) -> bool:
        """Return whether a value produced inside `nodes` is used outside or is a graph output."""
        return bool(self._users.get(value, 0) & ~nodes) or value in self._graph_outputs


def _meet(nodes: list[int], parent: list[int], depth: list[int]) -> int:
    """Return the lowest common ancestor of `nodes` in a tree given by parents and depths."""
    common = nodes[0]
    for other in nodes[1:]:
        while common != other:
            if depth[common] >= depth[other]:
                common = parent[common]
            else:
                other = parent[other]
    return common
