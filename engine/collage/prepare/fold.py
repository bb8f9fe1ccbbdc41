"""Fold everything that does not depend on the inputs: constants, shape arithmetic, and no-op operators."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.prepare.noop import known_tensor, unchanged_input
from collage.prepare.symbolic import known_data
from collage.reference.evaluator import NodeEvaluator
from collage_core.ir.graph.walk import bodies, is_pure_node
from collage_core.ir.io.inference import infer_loop_state, infer_node, static_shape

FOLD_LIMIT_BYTES = 16 << 20
"""Largest size of a folded value, unless the constants it replaces are larger."""

NEVER_MERGED = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Random operators: each occurrence draws its own numbers, at each run."""

_KEPT = NEVER_MERGED | {"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"}
"""Quantisation of constants, which is not folded: toolchains recognise int8 kernels by it."""


class Folder:
    """Folds one model in place; `changed` states whether anything was folded."""

    def __init__(self, model: ir.Model) -> None:
        self.changed = False
        self._opsets = model.opset_imports
        self._functions = model.functions
        self._whole = model.graph
        self._evaluator = NodeEvaluator(model.opset_imports)

    def fold(self, graph: ir.Graph) -> None:
        """Visit a topologically sorted graph once, sub-graphs included."""
        for node in graph:
            if node.op_type == "Constant" and _standard(node):
                self._lift_constant(graph, node)
                continue
            held = list(bodies(node))
            if node.op_type == "Loop" and _standard(node):
                infer_loop_state(node, self._opsets)
            for body in held:
                self.fold(body)
            if held:
                if node.op_type == "If" and _standard(node):
                    self._take_branch(graph, node)
                continue
            if node.op_identifier() in self._functions:
                continue
            infer_node(node, self._opsets)
            if not _standard(node):
                continue
            if (source := unchanged_input(node)) is not None:
                self.changed |= rename_through(graph, node, source)
            elif (arrays := self._computed(node)) is not None:
                self._replace(graph, node, arrays)

    def _lift_constant(self, graph: ir.Graph, node: ir.Node) -> None:
        results = self._evaluator.run(node, {})
        attribute = node.attributes.get("value")
        tensor = attribute.as_tensor() if attribute is not None else None
        self._replace(graph, node, results, tensor)

    def _computed(self, node: ir.Node) -> tuple[Any, ...] | None:
        """Return what a node always gives, if that is known and small enough."""
        if (dims := _known_dims(node)) is not None:
            return (dims,)
        known = [known_data(value) for value in node.outputs if value.name]
        if known and all(data is not None for data in known):
            return tuple(known)
        if node.op_type in _KEPT or not node.outputs or not is_pure_node(node):
            return None
        inputs = [value for value in node.inputs if value is not None]
        if any(known_tensor(value) is None for value in inputs):
            return None
        if any(value.dtype == ir.DataType.STRING for value in (*inputs, *node.outputs)):
            return None
        if _expected_bytes(node) > max(FOLD_LIMIT_BYTES, _freed_bytes(node)):
            return None
        scope = {value: constant.numpy() for value in inputs if (constant := value.const_value)}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results = self._evaluator.run(node, scope)
        except Exception:  # whatever cannot be computed now is computed when the model runs
            return None
        if not all(isinstance(result, np.ndarray) for result in results):
            return None
        if sum(result.nbytes for result in results) > max(FOLD_LIMIT_BYTES, _freed_bytes(node)):
            return None
        return results

    def _replace(
        self,
        graph: ir.Graph,
        node: ir.Node,
        arrays: tuple[Any, ...],
        tensor: ir.TensorProtocol | None = None,
    ) -> None:
        """Put initializers in place of a node.

        An initializer may not be a graph output in every toolchain, a node always may. An output of the model becomes
        a view of an initializer, which needs no kernel and so no toolchain; strings, and outputs of branches, stay
        Constant nodes.
        """
        if any(value.is_graph_output() for value in node.outputs):
            if len(node.outputs) != 1:
                return
            output = node.outputs[0]
            held = tensor if tensor is not None else _tensor(arrays[0], output)
            if graph is self._whole and held.dtype != ir.DataType.STRING:
                _view(graph, node, held)
            elif node.op_type == "Constant":
                return
            else:
                constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", held)], name=node.name)
                _swap_output(graph, node, constant)
        else:
            for value, array in zip(node.outputs, arrays, strict=False):
                if not value.uses():
                    continue
                held = tensor if tensor is not None else _tensor(array, value)
                replacement = ir.val(value.name, const_value=held)
                value.replace_all_uses_with(replacement)
                value.name = None
                graph.register_initializer(replacement)
            graph.remove(node, safe=True)
        self.changed = True

    def _take_branch(self, graph: ir.Graph, node: ir.Node) -> None:
        """Put the branch that a constant condition selects in place of an If."""
        condition = known_tensor(node.inputs[0])
        if condition is None:
            return
        taken = bool(condition.numpy().item())
        body = node.attributes["then_branch" if taken else "else_branch"].as_graph()
        if any(value.is_graph_output() for value in node.outputs):
            return
        produced = [value.producer() for value in body.outputs]
        results = list(body.outputs)
        if any(p is None for p in produced) and any(v.is_graph_input() for v in results):
            return
        for value in list(body.initializers.values()):
            body.initializers.pop(str(value.name))
            value.name = fresh_name(graph, str(value.name))
            graph.register_initializer(value)
        nodes = list(body)
        body.outputs.clear()
        body.remove(nodes)
        graph.insert_before(node, nodes)
        for value, result in zip(node.outputs, results, strict=True):
            value.replace_all_uses_with(result)
        graph.remove(node, safe=True)
        self.changed = True


def rename_through(graph: ir.Graph, node: ir.Node, source: ir.Value) -> bool:
    """Remove a node whose only used output equals `source`; say whether that could be done.

    A graph output keeps its name: the source takes it, if a node of the same graph made it and it is no output
    itself. Otherwise the node stays, as the Identity that it is.
    """
    output = node.outputs[0]
    if output.is_graph_output():
        maker = source.producer()
        if maker is None or maker.graph is not graph or source.is_graph_output():
            return _as_identity(graph, node, source)
        name, output.name = output.name, None
        source.name = name
        _adopt_type(source, output)
    output.replace_all_uses_with(source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


def _as_identity(graph: ir.Graph, node: ir.Node, source: ir.Value) -> bool:
    if node.op_type == "Identity":
        return False
    _swap_output(graph, node, ir.Node("", "Identity", [source], name=node.name))
    return True


def _view(graph: ir.Graph, node: ir.Node, held: ir.TensorProtocol) -> None:
    """Put an Identity of an initializer in place of a node that gives a graph output."""
    taken = {value.name for value in graph.inputs} | {value.name for each in graph for value in each.outputs}
    constant = ir.val(fresh_name(graph, f"{node.outputs[0].name}_value", taken), const_value=held)
    graph.register_initializer(constant)
    view = ir.Node("", "Identity", [constant], name=node.name)
    _swap_output(graph, node, view)
    shown = view.outputs[0]
    shown.type, shown.shape = constant.type, constant.shape
    for reader, place in list(shown.uses()):  # others need not wait for the view
        reader.replace_input_with(place, constant)


def _swap_output(graph: ir.Graph, node: ir.Node, replacement: ir.Node) -> None:
    old, new = node.outputs[0], replacement.outputs[0]
    new.name, old.name = old.name, None
    new.type, new.shape = old.type, old.shape
    graph.insert_before(node, replacement)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _adopt_type(value: ir.Value, other: ir.Value) -> None:
    if value.type is None:
        value.type = other.type
    if static_shape(value) is None and other.shape is not None:
        value.shape = other.shape


def _known_dims(node: ir.Node) -> Any:
    """Return what Shape, Size, or a Gather from a Shape gives where those dimensions are known.

    So shape arithmetic on the static axes of a tensor with one data-dependent axis still folds.
    """
    value = node.inputs[0] if node.inputs else None
    if value is None:
        return None
    if node.op_type == "Size":
        shape = static_shape(value)
        return None if shape is None else np.array(int(np.prod(shape, dtype=np.int64)))
    if node.op_type == "Shape":
        dims = _shape_result(node)
        known = dims is not None and all(isinstance(dim, int) for dim in dims)
        return np.array(dims, np.int64) if known else None
    if node.op_type == "Gather":
        maker = value.producer()
        index = known_tensor(node.inputs[1])
        if maker is None or maker.op_type != "Shape" or not _standard(maker):
            return None
        if index is None:
            return None
        dims = _shape_result(maker)
        where = index.numpy()
        if dims is None or where.size == 0 or where.min() < -len(dims) or where.max() >= len(dims):
            return None
        picked = [dims[int(position)] for position in where.ravel()]
        if all(isinstance(dim, int) for dim in picked):
            return np.array(picked, np.int64).reshape(where.shape)
    return None


def _shape_result(node: ir.Node) -> list[int | ir.SymbolicDim] | None:
    value = node.inputs[0]
    if value is None or value.shape is None:
        return None
    dims = list(value.shape)
    return dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(dims))]


def _expected_bytes(node: ir.Node) -> int:
    total = 0
    for value in node.outputs:
        shape = static_shape(value)
        if shape is not None:
            size = 8 if value.dtype is None else max(1, value.dtype.bitwidth // 8)
            total += int(np.prod(shape, dtype=np.int64)) * size
    return total


def _freed_bytes(node: ir.Node) -> int:
    """Return the number of bytes of the constants that only this node uses."""
    return sum(
        value.const_value.nbytes
        for value in {value for value in node.inputs if value is not None}
        if value.const_value is not None
        and not value.is_graph_output()
        and all(user is node for user, _ in value.uses())
    )


def _tensor(array: Any, value: ir.Value) -> ir.TensorProtocol:
    if np.asarray(array).dtype.kind in "OUS":
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in np.ravel(array).tolist()]
        return ir.StringTensor(texts, shape=ir.Shape(np.shape(array)), name=value.name)
    # an array may be a view of a larger one that would be kept alive by it
    own = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
    if own.base is not None and own.base.nbytes > own.nbytes:
        own = own.copy()
    if value.dtype is not None and value.dtype.bitwidth < 8:
        return ir.Tensor(own, dtype=value.dtype, name=value.name)
    return ir.Tensor(own, name=value.name)


def _standard(node: ir.Node) -> bool:
    return node.domain == ""


def fresh_name(graph: ir.Graph, name: str, taken: Collection[str | None] = ()) -> str:
    """Return a name that no initializer of a graph has yet.

    Args:
        graph: The graph.
        name: The name, if it is free; otherwise its beginning.
        taken: Names that others have.
    """
    while name in graph.initializers or name in taken:
        name += "_"
    return name
