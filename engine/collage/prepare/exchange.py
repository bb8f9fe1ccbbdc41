"""Models as files that two processes exchange without copying the weights that both have.

In `FOLDER/given.onnx` large weights are external data: in the file in which they are, or in `FOLDER/given.data`. In
`FOLDER/prepared.onnx` weights that did not change are still there, and what preparing made is in
`FOLDER/prepared.data`.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from collage_core.ir.io.model_io import bring_inside, external_tensors

_INLINE_BYTES = 1024
_ALIGNMENT = 64
_BITS_PER_BYTE = 8
_GIVEN, _PREPARED = "given", "prepared"

Place: TypeAlias = tuple[str, int]
"""File and offset of a weight."""


def write_given(model: ir.Model, folder: Path) -> dict[Place, ir.TensorProtocol]:
    """Write a model for another process.

    Args:
        model: The model; it is not changed.
        folder: Where its files go.

    Returns:
        The tensors that the files refer to.
    """
    copy = model.clone()
    known: dict[Place, ir.TensorProtocol] = {}
    with (folder / f"{_GIVEN}.data").open("wb") as stream:
        for value in _large(copy):
            tensor = value.const_value
            assert tensor is not None
            if isinstance(tensor, ir.ExternalTensor):
                place = (os.path.join(tensor.base_dir, tensor.location), tensor.offset or 0)
            else:
                place = (f"{_GIVEN}.data", _append(stream, tensor))
            known[place] = tensor
            value.const_value = _external(tensor, place)
    bring_inside(copy)  # of sub-graphs, functions and attributes
    _write(copy, folder / f"{_GIVEN}.onnx")
    return known


def read_given(folder: Path) -> ir.Model:
    """Read what `write_given` wrote; weights are mapped on first use."""
    model = _read(folder / f"{_GIVEN}.onnx")
    for tensor in external_tensors(model):
        tensor.base_dir = folder
    return model


def write_prepared(model: ir.Model, folder: Path) -> None:
    """Write the prepared model beside the given one; the model is changed."""
    with (folder / f"{_PREPARED}.data").open("wb") as stream:
        for value in _large(model):
            tensor = value.const_value
            assert tensor is not None
            if not isinstance(tensor, ir.ExternalTensor):
                place = (f"{_PREPARED}.data", _append(stream, tensor))
                value.const_value = _external(tensor, place)
    _write(model, folder / f"{_PREPARED}.onnx")


def read_prepared(folder: Path, known: dict[Place, ir.TensorProtocol]) -> ir.Model:
    """Read what `write_prepared` wrote; the folder may be removed afterwards.

    Args:
        folder: Where it is.
        known: The given weights, which the model shares.
    """
    model = _read(folder / f"{_PREPARED}.onnx")
    with (folder / f"{_PREPARED}.data").open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        made = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        place = (os.fspath(tensor.location), tensor.offset or 0)
        if place in known:
            value.const_value = known[place]
        elif tensor.dtype.bitwidth < _BITS_PER_BYTE:
            tensor.base_dir = folder
            value.const_value = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
        else:
            shape = tensor.shape.numpy()
            array = np.frombuffer(made, tensor.dtype.numpy(), math.prod(shape), tensor.offset or 0)
            value.const_value = ir.Tensor(array.reshape(shape), dtype=tensor.dtype, name=tensor.name)
    return model


def _large(model: ir.Model) -> Iterator[ir.Value]:
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes > _INLINE_BYTES and tensor.dtype != ir.DataType.STRING:
            yield value


def _append(stream: IO[bytes], tensor: ir.TensorProtocol) -> int:
    """Write the bytes of a tensor and return their offset."""
    stream.write(b"\0" * (-stream.tell() % _ALIGNMENT))
    offset = stream.tell()
    stream.write(tensor.tobytes())
    return offset


def _external(tensor: ir.TensorProtocol, place: Place) -> ir.ExternalTensor:
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor(place[0], place[1], tensor.nbytes, tensor.dtype, shape=shape, name=tensor.name or "")


def _write(model: ir.Model, path: Path) -> None:
    path.write_bytes(ir.serde.serialize_model(model).SerializeToString())


def _read(path: Path) -> ir.Model:
    proto = onnx.ModelProto()
    proto.ParseFromString(path.read_bytes())
    return ir.serde.deserialize_model(proto)
