"""Read and write ONNX models: files, bytes, and weights stored beside the file.

Weights are never copied on reading: a tensor inside the protobuf is a view of it, and one in an external data
file is memory-mapped on first access. On writing, a model whose weights would not fit into one protobuf message
gets one data file beside it.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import onnx
import onnx_ir as ir

from collage_core.errors import ExternalDataError, ModelFileError
from collage_core.ir.graph.order import circle, described, is_ordered
from collage_core.ir.graph.walk import bodies
from collage_core.ir.io.function_types import describe_function_inputs
from collage_core.ir.io.message_check import objection
from collage_core.ir.io.other_files import guessed
from collage_core.ir.io.quiet import only_errors_of
from collage_core.ir.io.replacement import Replacement
from collage_core.ir.io.special_files import why_no_file
from collage_core.ir.values.sparse import make_dense

EXTERNAL_THRESHOLD_BYTES = 1 << 30
"""Total size above which weights go into a data file: protobuf rejects messages of 2 GiB and more."""

SMALL_TENSOR_BYTES = 1024
"""Maximum size of tensors that always stay inside the protobuf: shapes and axes must be readable from it."""

_TEXT_SUFFIXES = frozenset(
    {".json", ".onnxjson", ".onnxtext", ".onnxtxt", ".pbtxt", ".prototxt", ".textproto", ".txtpb"}
)
"""File name suffixes that ONNX reads as text (`onnx.serialization`)."""

_ALIGNMENT = 4096  # of each tensor in a data file, so that a reader can map it page by page


class ExportedModel(Protocol):
    """What `torch.onnx.export` returns, `torch.onnx.ONNXProgram`, as far as it is read."""

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model with all weights."""


GivenModel: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model | ExportedModel
"""A model in any of the forms in which Python code has one."""


def load_model(path: str | os.PathLike[str]) -> ir.Model:
    """Read a model from a file; external data is found relative to the file and mapped lazily.

    Args:
        path: A `.onnx` file; `.onnxtxt`, `.textproto` and `.json` are read as those formats.

    Returns:
        The model. Its tensors read from the file on first use.

    Raises:
        ModelFileError: If the file cannot be read or is not an ONNX model.
        ExternalDataError: If external data is missing, too short or outside the model's folder.
    """
    source = os.fspath(path)
    if reason := why_no_file(source):
        raise ModelFileError(source, reason)
    is_text = Path(source).suffix in _TEXT_SUFFIXES
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # that reading text is an experiment
            proto = onnx.load(source, load_external_data=False)
    except OSError as error:
        raise ModelFileError(source, error.strerror or str(error)) from error
    except Exception as error:  # each text format's parser has its own exception type
        unread = f"it is cut off, damaged, or no ONNX model ({_first_line(error)})"
        raise ModelFileError(source, ("" if is_text else guessed(Path(source))) or unread) from error
    # protobuf reads many short byte strings, the empty one among them, as an empty message
    if not proto.HasField("graph") and (what := guessed(Path(source))):
        raise ModelFileError(source, what)
    model = _deserialize(proto, source)
    _locate_external_data(model, source)
    return model


def model_from_bytes(data: bytes) -> ir.Model:
    """Parse a serialized `ModelProto`.

    Raises:
        ModelFileError: If the bytes are not an ONNX model.
        ExternalDataError: If a weight refers to external data, which bytes cannot have.
    """
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf's own DecodeError, which has no typed home
        raise ModelFileError("<bytes>", _first_line(error)) from error
    return _held_by(proto, "<bytes>")


def _held_by(proto: onnx.ModelProto, source: str) -> ir.Model:
    """Return the model of a message in memory, which has to hold all weights."""
    model = _deserialize(proto, source)
    for tensor in external_tensors(model):
        raise ExternalDataError(
            source,
            tensor.name or "?",
            os.fspath(tensor.location),
            "a model in memory must hold its weights itself; give the path of its file",
        )
    return model


def model_given(given: GivenModel) -> str | os.PathLike[str] | ir.Model:
    """Return a model in any of the forms that Python code has it in, as a path or read.

    Args:
        given: A path, which is returned as it is; a model of onnx_ir, likewise; a serialized or parsed `ModelProto`; or
            what `torch.onnx.export` returns.

    Raises:
        ModelFileError: If it is none of these, or no ONNX model.
        ExternalDataError: If a weight refers to external data, which only a file can have.
    """
    if isinstance(given, str | os.PathLike | ir.Model):
        return given
    if isinstance(given, bytes):
        return model_from_bytes(given)
    if isinstance(given, onnx.ModelProto):
        return _held_by(_copied(given), "<onnx.ModelProto>")
    name = type(given).__name__
    exported = getattr(given, "model", None)
    if isinstance(exported, ir.Model):
        return exported
    if isinstance(proto := getattr(given, "model_proto", None), onnx.ModelProto):
        return _held_by(_copied(proto), f"<{name}>")
    raise ModelFileError(f"<{name}>", "give a path, bytes, an onnx.ModelProto, an onnx_ir.Model or an ONNXProgram")


def _copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy: reading changes a message, and this one is the caller's."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def save_model(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Write a model so that the path holds either the old file or the whole new one.

    Weights beyond `EXTERNAL_THRESHOLD_BYTES` in total go to `<name>.data` beside it, renamed into place
    just before the model is. The model given is left as it is; one that was loaded from the same path stays
    readable, because its mapped files are replaced, not overwritten.

    Raises:
        ModelFileError: If the folder cannot be written to.
    """
    target = Path(os.path.realpath(path))
    copy = _private_copy(model)
    holders = list(_initializers(copy))
    total = sum(value.const_value.nbytes for value in holders if value.const_value is not None)
    try:
        with _Staging(target.parent) as staging:
            if total > EXTERNAL_THRESHOLD_BYTES:
                _write_external_data(holders, staging, f"{target.name}.data")
            proto = ir.serde.serialize_model(copy)
            staging.file(target.name).stream.write(proto.SerializeToString())
            staging.commit()
    except OSError as error:
        raise ModelFileError(os.fspath(path), error.strerror or str(error)) from error


def model_to_bytes(model: ir.Model) -> bytes:
    """Serialize a model with all its weights inside.

    Raises:
        ModelFileError: If it would exceed protobuf's 2 GiB.
    """
    proto = ir.serde.serialize_model(_private_copy(model))
    try:
        return bytes(proto.SerializeToString())
    except Exception as error:  # EncodeError or ValueError, by protobuf's implementation
        raise ModelFileError("<bytes>", f"{_first_line(error)}; save it with `save_model` instead") from error


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Yield every tensor of a model, in graphs, functions and attributes, that lives in another file."""
    for value in _initializers(model):
        if isinstance(value.const_value, ir.ExternalTensor):
            yield value.const_value
    for node in _nodes(model):
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            tensors: list[Any] = []
            if attribute.type == ir.AttributeType.TENSOR:
                tensors = [attribute.as_tensor()]
            elif attribute.type == ir.AttributeType.TENSORS:
                tensors = list(attribute.as_tensors())
            for tensor in tensors:
                if isinstance(tensor, ir.ExternalTensor):
                    yield tensor


def _deserialize(proto: onnx.ModelProto, source: str) -> ir.Model:
    if not proto.HasField("graph"):
        raise ModelFileError(source, "it holds no graph, so it is not an ONNX model, or is cut off")
    if reason := make_dense(proto) or objection(proto):
        raise ModelFileError(source, reason)
    try:
        with only_errors_of(ir.serde.__name__):  # what it warns of is told when the model is prepared, as one error
            model = ir.serde.deserialize_model(proto)
    except Exception as error:
        raise ModelFileError(source, _first_line(error)) from error
    _order(model, source)
    describe_function_inputs(model)
    return model


def _order(model: ir.Model, source: str) -> None:
    """Put nodes after what they read, in place: a file without an order is not valid, and there are some."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        if is_ordered(graph):
            continue
        if found := circle(graph):
            raise ModelFileError(source, f"its nodes go in a circle: {described(found)}")
        graph.sort()


def _locate_external_data(model: ir.Model, source: str) -> None:
    folder = Path(source).parent.resolve()
    for tensor in external_tensors(model):
        location = os.fspath(tensor.location)
        name = tensor.name or "?"
        file = folder / location
        if os.path.isabs(location) or not file.resolve().is_relative_to(folder):
            raise ExternalDataError(source, name, location, "it lies outside the folder of the model; copy it there")
        if not file.is_file():
            raise ExternalDataError(source, name, location, "the file does not exist; put it beside the model")
        if tensor.length is not None and tensor.length < tensor.nbytes:
            size = f"its length there is {tensor.length} bytes, and its shape {tensor.shape} needs {tensor.nbytes}"
            raise ExternalDataError(source, name, location, f"{size}; export the model again")
        needed = (tensor.offset or 0) + tensor.nbytes
        present = file.stat().st_size
        if present < needed:
            raise ExternalDataError(
                source,
                name,
                location,
                f"the file has {present} bytes, {needed} are needed; it may be a partial download",
            )
        tensor.base_dir = folder


def bring_inside(model: ir.Model, *, up_to: float = SMALL_TENSOR_BYTES) -> None:
    """Load external data in place, except for large weights of the main graph.

    Such tensors become views of the mapped file.

    Args:
        model: The model.
        up_to: Largest size in bytes of a weight of the main graph that is loaded.
    """
    for value in _initializers(model):
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and (value.graph is not model.graph or tensor.nbytes <= up_to):
            value.const_value = _inside(tensor)
    _bring_attributes_inside(model)


def _private_copy(model: ir.Model) -> ir.Model:
    """Copy the structure, share the weights, and refer to no external file."""
    copy = model.clone()
    bring_inside(copy, up_to=math.inf)
    return copy


def _bring_attributes_inside(model: ir.Model) -> None:
    for node in _nodes(model):
        for name, attribute in list(node.attributes.items()):
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.TENSOR:
                tensor = attribute.as_tensor()
                if isinstance(tensor, ir.ExternalTensor):
                    node.attributes[name] = ir.AttrTensor(name, _inside(tensor))
            elif attribute.type == ir.AttributeType.TENSORS:
                tensors = [
                    _inside(each) if isinstance(each, ir.ExternalTensor) else each for each in attribute.as_tensors()
                ]
                node.attributes[name] = ir.AttrTensors(name, tensors)


def _inside(tensor: ir.ExternalTensor) -> ir.Tensor[Any]:
    return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


def _write_external_data(holders: list[ir.Value], staging: _Staging, name: str) -> None:
    offset = 0
    file = staging.file(name)
    for value in holders:
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes <= SMALL_TENSOR_BYTES:
            continue
        padding = -offset % _ALIGNMENT
        file.stream.write(b"\0" * padding)
        offset += padding
        data = tensor.tobytes()
        file.stream.write(data)
        value.const_value = ir.ExternalTensor(
            name,
            offset,
            len(data),
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "",
        )
        offset += len(data)


class _Staging:
    """Files written under temporary names in the target folder, renamed together at `commit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Replacement] = []

    def __enter__(self) -> _Staging:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.discard()

    def file(self, name: str) -> Replacement:
        self._files.append(Replacement(self._folder / name))
        return self._files[-1]

    def commit(self) -> None:
        for file in self._files:
            file.finish()
        for file in self._files:
            file.put_in_place()


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    yield model.graph
    for function in model.functions.values():
        yield function.graph
    for node in _nodes(model):
        yield from bodies(node)


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    for graph in _graphs(model):
        yield from graph.initializers.values()


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:  # the IR wraps what went wrong in where it did
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
