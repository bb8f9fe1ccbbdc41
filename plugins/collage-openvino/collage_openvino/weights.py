"""Weights in a file beside the model, with a layout from which the same file can be rebuilt at load time."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir
from onnx_ir.passes.common import InlinePass

Array: TypeAlias = np.ndarray[Any, Any]

MODEL = "model.onnx"
WEIGHTS = "weights.bin"

INLINE_BYTES = 1024
"""Tensors up to this size stay in the model: shapes, axes and scales are read during conversion."""

EMBED_BYTES = 1 << 20
"""Up to this total, weights are embedded: writing a file at each load costs more than it saves."""

_ALIGNMENT = 4096  # OpenVINO maps the file; a tensor that starts on a page is aligned for every kernel
_PACKED_BELOW_BITS = 8
_LABEL = re.compile(r"(?:^|,)(\d+)#")


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """A large initializer stored beside the model.

    Attributes:
        constant: Name of the function's constant it is a copy of.
        array: Its value.
    """

    constant: str
    array: Array


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A model ready for `openvino.Core.read_model`.

    Attributes:
        proto: The serialized model; its large weights are in the file `WEIGHTS` if `weights` is not empty.
        weights: Those weights, in the order of the file.
    """

    proto: bytes
    weights: tuple[Weight, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all weights stored beside the model."""
        return sum(weight.array.nbytes for weight in self.weights)


def source_of(model: onnx_ir.Model) -> Source:
    """Prepare a copy of a model; its functions are inlined, since the frontend has no rule for calls.

    Names of nodes begin with their position, so that `positions_in` knows them in a compiled model, where `Reshape_12`
    may also be what OpenVINO calls a node of its own.
    """
    copy = model.clone()
    for position, node in enumerate(copy.graph):
        node.name = f"{position}#{node.name}"
    if copy.functions:
        InlinePass()(copy)
    twins = _one_initializer_per_use(copy.graph)
    large = {
        name: np.asarray(tensor.numpy(), order="C")
        for name, value in copy.graph.initializers.items()
        if (tensor := value.const_value) is not None
        and tensor.nbytes > INLINE_BYTES
        and tensor.dtype != onnx_ir.DataType.STRING
        and tensor.dtype.bitwidth >= _PACKED_BELOW_BITS
    }
    if sum(array.nbytes for array in large.values()) <= EMBED_BYTES:
        large = {}
    places = offsets([array.nbytes for array in large.values()])
    for (name, array), place in zip(large.items(), places, strict=True):
        value = copy.graph.initializers[name]
        assert value.const_value is not None
        value.const_value = onnx_ir.ExternalTensor(
            WEIGHTS, place, array.nbytes, value.const_value.dtype, shape=onnx_ir.Shape(array.shape), name=name
        )
    for graph in (copy.graph, *copy.graph.subgraphs()):
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if isinstance(tensor, onnx_ir.ExternalTensor) and not (graph is copy.graph and name in large):
                value.const_value = onnx_ir.Tensor(
                    tensor.numpy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name
                )
    weights = tuple(Weight(twins.get(name, name), array) for name, array in large.items())
    return Source(onnx_ir.to_proto(copy).SerializeToString(), weights)


def positions_in(names: str) -> list[int]:
    """Return the positions of the nodes in a list of names that OpenVINO keeps of fused nodes.

    Examples:
        >>> positions_in("0#conv/WithoutBiases,0#conv,1#relu,Multiply_17")
        [0, 0, 1]
    """
    return [int(position) for position in _LABEL.findall(names)]


def _one_initializer_per_use(graph: onnx_ir.Graph) -> dict[str, str]:
    """Give every further use of a matrix its own initializer; return the original's name for each copy.

    Seen with 2026.4.1: of two products with the same square constant, one of them transposed, the second is
    computed with the packed weights of the first. Two equal constants are packed separately.
    """
    twins: dict[str, str] = {}
    for name, value in list(graph.initializers.items()):
        if value.shape is None or len(value.shape) < 2 or value.const_value is None:
            continue
        for number, (node, index) in enumerate(list(value.uses())[1:], start=1):
            twin = onnx_ir.Value(
                name=f"{name}/use{number}", shape=value.shape, type=value.type, const_value=value.const_value
            )
            graph.register_initializer(twin)
            node.replace_input_with(index, twin)
            twins[str(twin.name)] = name
    return twins


def offsets(sizes: Sequence[int]) -> list[int]:
    """Return the offset of each tensor in the file, which depends only on the sizes.

    Examples:
        >>> offsets([10, 5000, 1])
        [0, 4096, 12288]
    """
    places: list[int] = []
    end = 0
    for size in sizes:
        places.append(math.ceil(end / _ALIGNMENT) * _ALIGNMENT)
        end = places[-1] + size
    return places


def write_weights(path: Path, arrays: Sequence[Array]) -> None:
    """Write the file that models made by `source_of` refer to."""
    places = offsets([array.nbytes for array in arrays])
    with path.open("wb") as stream:
        for array, place in zip(arrays, places, strict=True):
            stream.seek(place)
            stream.write(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)


def read(core: Any, source: Source, folder: Path) -> Any:
    """Parse a model with OpenVINO; `folder` must exist until it is compiled.

    Raises:
        RuntimeError: If OpenVINO cannot convert it.
    """
    if not source.weights:
        return core.read_model(source.proto)
    (folder / MODEL).write_bytes(source.proto)
    write_weights(folder / WEIGHTS, [weight.array for weight in source.weights])
    return core.read_model(folder / MODEL)
