"""Import an ONNX model as a network of the library, and check that it still matches the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx_ir

from collage_core.ir.io.model_io import model_to_bytes
from collage_tensorrt.dtypes import library_type
from collage_tensorrt.messages import log_of, parser_reason, why


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A model the importer accepted.

    Attributes:
        builder: Builder of the network.
        network: The library's network.
        log: Collects the library's error messages.
        free: Names of inputs for which the model leaves a size open.
        keeps: The parser and the bytes it read: weights of the network are in their memory until an engine is built.
    """

    builder: Any
    network: Any
    log: Any
    free: tuple[str, ...]
    keeps: tuple[Any, ...] = dataclasses.field(repr=False)


def read(library: Any, model: onnx_ir.Model) -> Network | str:
    """Parse a model with the importer as strongly typed: each tensor has ONNX's type and no other is tried.

    Args:
        library: The library.
        model: A model whose graph inputs and outputs have types and shapes.

    Returns:
        The network; or why there is none that could be bound to the model's inputs and outputs.
    """
    log = log_of(library)
    builder = library.Builder(log)
    network = builder.create_network(1 << int(library.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = library.OnnxParser(network, log)
    data = model_to_bytes(model)
    if not parser.parse(data):
        errors = [parser_reason(parser.get_error(place)) for place in range(parser.num_errors)]
        return "; ".join(dict.fromkeys(errors)) or why(log, "its importer refuses it and does not say why")
    inputs = {each.name: each for each in (network.get_input(place) for place in range(network.num_inputs))}
    outputs = {each.name: each for each in (network.get_output(place) for place in range(network.num_outputs))}
    free = tuple(name for name, tensor in inputs.items() if -1 in tuple(tensor.shape))
    problem = _input_problem(model, inputs) or _output_problem(model, outputs, free)
    return problem or Network(builder=builder, network=network, log=log, free=free, keeps=(parser, data))


def _input_problem(model: onnx_ir.Model, inputs: Mapping[str, Any]) -> str:
    for value in model.graph.inputs:
        name = str(value.name)
        tensor = inputs.get(name)
        if tensor is None:
            continue  # nobody reads it
        if tensor.is_shape_tensor:
            return f"it reads {name!r} on the host, to know a shape before it runs"
        if problem := _type_problem(name, value, tensor):
            return problem
    return ""


def _output_problem(model: onnx_ir.Model, outputs: Mapping[str, Any], free: tuple[str, ...]) -> str:
    for value in model.graph.outputs:
        name = str(value.name)
        tensor = outputs.get(name)
        if tensor is None:
            return f"its importer loses the output {name!r}"
        if tensor.is_shape_tensor:
            return f"it computes {name!r} on the host"
        if problem := _type_problem(name, value, tensor):
            return problem
        found, wanted = tuple(tensor.shape), None if value.shape is None else tuple(value.shape)
        if -1 in found and not free:
            return f"the shape of {name!r} depends on data"
        if wanted is not None and (
            len(found) != len(wanted)
            or any(isinstance(n, int) and m not in (n, -1) for n, m in zip(wanted, found, strict=True))
        ):
            return f"it gives {name!r} the shape {list(found)}, ONNX says {list(wanted)}"
    return ""


def _type_problem(name: str, value: onnx_ir.Value, tensor: Any) -> str:
    wanted = library_type(value.dtype)
    if not wanted:
        return f"{name!r} is {value.dtype.name if value.dtype else 'no tensor'}, which does not cross its boundary"
    found = tensor.dtype.name
    return "" if found == wanted else f"it has {name!r} as {found}, ONNX says {wanted}"
