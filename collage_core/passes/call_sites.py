"""Find the kernels of a partitioned model: their call sites and functions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir

from collage_core.contract.function import KernelFunction
from collage_core.errors import ModelError
from collage_core.ir.graph.canonical import CanonicalForm, Composite, overlap
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import COLLAGE_DOMAIN, extract_form
from collage_core.ir.graph.masks import mask_of
from collage_core.ir.graph.metadata_keys import COMPILER_METADATA, COMPOSITE_METADATA, PRIMITIVE_METADATA
from collage_core.ir.operators.quantising import fold_quantised_weights
from collage_core.ir.operators.value_bounds import BOUND_METADATA
from collage_core.ir.values.content import constant_of, tensor_content_hash
from collage_core.passes.marking import INT8_METADATA, NODES_METADATA, PARTS_METADATA, TARGET_METADATA


def site_name(number: int) -> str:
    """Return the name of a kernel's call site, by its number in execution order."""
    return f"k{number:04d}"


@dataclasses.dataclass(frozen=True, eq=False)
class CallSite:
    """One call of a kernel in a partitioned model.

    Attributes:
        node: The call, in the main graph.
        function: The called function; several call sites may share it.
        target: Name of the target that runs it.
        toolchain: Name of the target's toolchain.
        data_inputs: Arguments that are not constants, in order.
        constants: Arguments that are constants of the main graph, in order.
        outputs: Values that the call produces.
    """

    node: onnx_ir.Node
    function: onnx_ir.Function
    target: str
    toolchain: str
    data_inputs: tuple[onnx_ir.Value | None, ...]
    constants: tuple[onnx_ir.Value, ...]
    outputs: tuple[onnx_ir.Value, ...]

    @property
    def name(self) -> str:
        """Unique name of the call site, such as `k0003`."""
        return self.node.name or ""

    @property
    def composite(self) -> str:
        """Label of the pattern that matched the whole kernel, or `""`."""
        return self.function.metadata_props.get(COMPOSITE_METADATA, "")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the prepared model's nodes that it replaces, in the order of the function's nodes."""
        try:
            names = json.loads(self.node.metadata_props.get(NODES_METADATA, "[]"))
        except (ValueError, RecursionError):
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ModelError(f"call site {self.name!r} does not say which nodes it stands for")
        return tuple(names)

    def kernel_function(self) -> KernelFunction:
        """Return the function with this call's weights bound, equivalent to `kernel_function` of its sub-graph.

        Inputs and outputs are ordered as in `data_inputs` and `outputs`, and keep the function's own names.
        """
        body = self.function.graph.clone()
        for inner, outer in zip(body.inputs, self.node.inputs, strict=True):
            if outer is not None:
                _typed_like(inner, outer)
        for inner, outer in zip(body.outputs, self.node.outputs, strict=True):
            _typed_like(inner, outer)
        weights = [
            inner for inner, outer in zip(body.inputs, self.node.inputs, strict=True) if constant_of(outer) is not None
        ]
        for inner, outer in zip(weights, self.constants, strict=True):
            inner.const_value = outer.const_value
            body.inputs.remove(inner)
            body.initializers.add(inner)
        shared = {str(value.name) for value in body.initializers.values()}
        made: frozenset[str] = frozenset()
        if INT8_METADATA in self.function.metadata_props:
            _constants_as_initializers(body)
            made = fold_quantised_weights(body)
        model = onnx_ir.Model(body, ir_version=10, producer_name="collage")
        graph = DataflowGraph(model)
        index = {node: position for position, node in enumerate(graph.nodes)}
        # The body is in canonical order already. Ordering it anew could swap inputs that look alike.
        form = CanonicalForm(
            order=tuple(index[node] for node in body),
            inputs=tuple(body.inputs),
            constants=tuple(body.initializers.values()),
            outputs=tuple(body.outputs),
            text="",
        )
        parts = _parts(self.function, form.order)
        extraction = extract_form(graph, form, name=self.function.name, composites=parts)
        metadata = self.function.metadata_props
        for key, value in metadata.items():
            if key.startswith(f"{COMPOSITE_METADATA}."):
                extraction.model.metadata_props[key] = value
        return KernelFunction(
            name=self.function.name,
            model=extraction.model,
            inputs=extraction.inputs,
            outputs=extraction.outputs,
            composite=self.composite,
            constants=_hashes(extraction.model.graph, shared) if made else None,  # type: ignore[arg-type]
        )


def call_sites(model: onnx_ir.Model) -> tuple[CallSite, ...]:
    """List the kernels a partitioned model calls, in execution order.

    Args:
        model: A model made by `apply_partitioning`; it may have been saved and loaded since.

    Raises:
        ModelError: If two call sites have the same name, or one has none; if a call passes its function more or
            fewer values than it takes, or metadata is not what `apply_partitioning` writes.
    """
    found = []
    seen: set[str] = set()
    for node in model.graph:
        function = model.functions.get(node.op_identifier())
        if function is None or function.domain != COLLAGE_DOMAIN or PRIMITIVE_METADATA not in function.metadata_props:
            continue
        if not node.name or node.name in seen:
            raise ModelError(f"the call sites of a partitioned model have unique names; {node.name!r} is not one")
        seen.add(node.name)
        if (len(node.inputs), len(node.outputs)) != (len(function.inputs), len(function.outputs)):
            raise ModelError(
                f"call site {node.name!r} has {len(node.inputs)} input(s) and {len(node.outputs)} output(s), "
                f"its function {len(function.inputs)} and {len(function.outputs)}"
            )
        _parts(function, range(len(function)))
        arguments = [(value, constant_of(value) is not None) for value in node.inputs]
        found.append(
            CallSite(
                node=node,
                function=function,
                target=function.metadata_props.get(TARGET_METADATA, ""),
                toolchain=function.metadata_props.get(COMPILER_METADATA, ""),
                data_inputs=tuple(value for value, constant in arguments if not constant),
                constants=tuple(value for value, constant in arguments if constant and value is not None),
                outputs=tuple(node.outputs),
            )
        )
        _ = found[-1].nodes
    return tuple(found)


def _parts(function: onnx_ir.Function, order: Sequence[int]) -> tuple[Composite, ...]:
    """Return the labelled parts of a kernel.

    Args:
        function: The kernel's function.
        order: Index of each node of the function, by its place there.
    """
    try:
        parts = tuple(_part(described, order) for described in json.loads(function.metadata_props[PARTS_METADATA]))
    except KeyError:
        return ()
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"kernel {function.name!r} does not say of what parts it is made") from error
    if fault := overlap(parts, mask_of(order)):
        raise ModelError(f"kernel {function.name!r} does not say of what parts it is made: {fault}")
    return parts


def _part(described: Sequence[Any], order: Sequence[int]) -> Composite:
    """Return one part of a kernel.

    Raises:
        TypeError: If the description is not of the form that `apply_partitioning` writes.
        ValueError: If it names nodes that there are not.
    """
    label, places, attributes, parts = described
    known = isinstance(label, str) and len(set(places)) == len(places) > 0 and set(places) <= set(range(len(order)))
    if not known or not all(isinstance(text, str) for pair in attributes for text in pair):
        raise ValueError(label)
    return Composite(
        label,
        mask_of(order[place] for place in places),
        tuple((name, value) for name, value in attributes),
        tuple(_part(part, order) for part in parts),
    )


def _hashes(body: onnx_ir.Graph, names: Iterable[str]) -> dict[str, str]:
    """Return the content hashes of those initializers that there still are."""
    tensors = {name: body.initializers[name].const_value for name in names if name in body.initializers}
    return {name: tensor_content_hash(tensor) for name, tensor in tensors.items() if tensor is not None}


def _constants_as_initializers(body: onnx_ir.Graph) -> None:
    """Turn the Constant nodes of a body, which are the scales of quantised products, into initializers."""
    for node in [node for node in body if node.op_type == "Constant" and node.domain == ""]:
        made = node.outputs[0]
        tensor = node.attributes["value"].as_tensor()
        value = onnx_ir.Value(name=made.name, type=made.type, shape=made.shape, const_value=tensor)
        made.replace_all_uses_with(value)
        body.remove(node)
        body.register_initializer(value)


def _typed_like(inner: onnx_ir.Value, outer: onnx_ir.Value) -> None:
    inner.type = outer.type
    inner.shape = outer.shape.copy() if outer.shape is not None else None
    if BOUND_METADATA in outer.metadata_props:
        inner.metadata_props[BOUND_METADATA] = outer.metadata_props[BOUND_METADATA]
