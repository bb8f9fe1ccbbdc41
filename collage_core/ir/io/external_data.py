"""Find what a serialized model reads from other files, without reading it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import onnx

from collage_core.errors import ModelFileError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExternalReference:
    """A tensor of a model whose elements are in another file.

    Attributes:
        name: Its name.
        location: The file, as the model says it: anything at all.
        of_main_graph: Whether it is an initializer of the main graph, which runtimes let a caller replace.
    """

    name: str
    location: str
    of_main_graph: bool


def external_references(model: bytes) -> list[ExternalReference]:
    """List every tensor of a serialized `ModelProto` that refers to another file, wherever in the message it is.

    Raises:
        ModelFileError: If the bytes are not an ONNX model.
    """
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception as error:  # protobuf's own DecodeError, which has no typed home
        raise ModelFileError("<bytes>", str(error)) from error
    if not proto.HasField("graph"):
        raise ModelFileError("<bytes>", "it holds no graph")
    own = {id(tensor): tensor for tensor in proto.graph.initializer}  # kept: the binding makes objects when asked
    return [
        ExternalReference(
            name=tensor.name,
            location=next((entry.value for entry in tensor.external_data if entry.key == "location"), ""),
            of_main_graph=id(tensor) in own,
        )
        for tensor in _tensors(proto)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]


def _tensors(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield every tensor in a message, by its descriptor: later versions of ONNX may have them in other places."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field in _leading_to_tensors(message.DESCRIPTOR):
        value = getattr(message, field.name)
        if hasattr(value, "DESCRIPTOR"):
            if message.HasField(field.name):
                yield from _tensors(value)
        else:
            for each in value:
                yield from _tensors(each)


@functools.cache
def _leading_to_tensors(descriptor: Any) -> tuple[Any, ...]:
    """Return the fields of a message in which there may be tensors."""
    return tuple(
        field
        for field in descriptor.fields
        if field.message_type is not None and onnx.TensorProto.DESCRIPTOR in _reached(field.message_type)
    )


@functools.cache
def _reached(descriptor: Any) -> frozenset[Any]:
    """Return the messages that a message may hold, itself included."""
    found, waiting = {descriptor}, [descriptor]
    while waiting:
        kinds = {field.message_type for field in waiting.pop().fields if field.message_type is not None}
        waiting += kinds - found
        found |= kinds
    return frozenset(found)
