"""A cuDNN graph as a value: what is asked of the library, without the library.

cuDNN describes tensors by extents in the order batch, channels, space and by strides, so a layout is nothing but
strides (NVIDIA's cuDNN frontend documentation, "Graphs"). Operations are named as methods of its `pygraph`.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir

from collage_core.contract import Json


class DataType(enum.Enum):
    """Element types, by the frontend's names, with ONNX's."""

    FLOAT = onnx_ir.DataType.FLOAT
    HALF = onnx_ir.DataType.FLOAT16
    BFLOAT16 = onnx_ir.DataType.BFLOAT16

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.value.itemsize)


class Layout(enum.Enum):
    """How a tensor of batch, channels and space lies in memory."""

    CHANNELS_FIRST = "nchw"
    CHANNELS_LAST = "nhwc"

    def strides(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Elements between neighbours along each axis of a packed tensor.

        Examples:
            >>> Layout.CHANNELS_FIRST.strides((2, 3, 4, 5)), Layout.CHANNELS_LAST.strides((2, 3, 4, 5))
            ((60, 20, 5, 1), (60, 1, 15, 3))
        """
        if self is Layout.CHANNELS_FIRST:
            return row_major(dims)
        batch, channels, *space = dims
        inner = row_major((batch, *space, channels))
        return (inner[0], 1, *inner[1:-1])


def row_major(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a packed tensor as ONNX and core have it.

    Examples:
        >>> row_major((2, 3, 4))
        (12, 4, 1)
    """
    return tuple(math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def lie_alike(dims: Sequence[int], first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two strides put every element at the same place: those of axes with one element do not count.

    Examples:
        >>> lie_alike((2, 3, 1, 1), (3, 1, 1, 1), (3, 1, 3, 3))
        True
    """
    return all(one == other for extent, one, other in zip(dims, first, second, strict=True) if extent > 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a graph.

    Attributes:
        name: Unique in the graph.
        dims: Extents.
        strides: In elements.
    """

    name: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements from its first to its last, both counted."""
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.dims, self.strides, strict=True))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One node of a graph.

    Attributes:
        kind: Method of `pygraph`.
        reads: Names of tensors by the method's argument.
        writes: Its result, whose extents and strides are said and not left to inference.
        attributes: Other arguments: numbers, lists of numbers, truth values.
        scalars: Arguments that are tensors of one float32 known when the graph is made.
    """

    kind: str
    reads: Mapping[str, str]
    writes: Tensor
    attributes: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """What one execution plan computes. Inner results and sums are float32, whatever the type in memory.

    Attributes:
        dtype: Of everything in memory.
        inputs: What is read from memory; tensor number n has the identifier n + 1.
        operations: In an order in which they can be computed; the last one's result goes to memory.
    """

    dtype: DataType
    inputs: tuple[Tensor, ...]
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        known = {tensor.name for tensor in self.inputs}
        if len(known) < len(self.inputs):
            raise ValueError("two inputs of a graph have the same name")
        for operation in self.operations:
            if missing := set(operation.reads.values()) - known:
                raise ValueError(f"{operation.kind} reads {', '.join(sorted(missing))}, which nothing writes")
            known.add(operation.writes.name)

    @property
    def output(self) -> Tensor:
        """What is written to memory."""
        return self.operations[-1].writes

    @property
    def in_memory(self) -> tuple[Tensor, ...]:
        """Inputs, then the output: tensor number n has the identifier n + 1, by which plans know it."""
        return (*self.inputs, self.output)

    def to_json(self) -> dict[str, Any]:
        """As keys and tests keep it."""
        return {
            "dtype": self.dtype.name,
            "inputs": [dataclasses.asdict(tensor) for tensor in self.inputs],
            "operations": [
                {
                    "kind": operation.kind,
                    "reads": dict(operation.reads),
                    "writes": dataclasses.asdict(operation.writes),
                    "attributes": dict(operation.attributes),
                    "scalars": dict(operation.scalars),
                }
                for operation in self.operations
            ],
        }
