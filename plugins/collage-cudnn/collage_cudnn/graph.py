"""A cuDNN graph as a plain value, independent of the library.

cuDNN describes tensors by extents in the order batch, channels, space and by strides, so a layout is merely a
choice of strides (NVIDIA's cuDNN frontend documentation, "Graphs"). Operations are named as methods of its
`pygraph`.
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
    """Element types, by the frontend's names, with their ONNX types."""

    FLOAT = onnx_ir.DataType.FLOAT
    HALF = onnx_ir.DataType.FLOAT16
    BFLOAT16 = onnx_ir.DataType.BFLOAT16

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.value.itemsize)


class Layout(enum.Enum):
    """Memory layout of a tensor of batch, channels and space."""

    CHANNELS_FIRST = "nchw"
    CHANNELS_LAST = "nhwc"

    def strides(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Return the number of elements between neighbours along each axis of a packed tensor.

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
    """Return the row-major strides of a packed tensor, as in ONNX and core.

    Examples:
        >>> row_major((2, 3, 4))
        (12, 4, 1)
    """
    return tuple(math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def lie_alike(dims: Sequence[int], first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether two strides place every element alike; axes with one element are ignored.

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
        """Elements from the first to the last, both included."""
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.dims, self.strides, strict=True))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One node of a graph.

    Attributes:
        kind: Method of `pygraph`.
        reads: Names of tensors by the method's argument.
        writes: Its result, with explicit extents and strides; nothing is left to inference.
        attributes: Other arguments: numbers, lists of numbers, Booleans.
        scalars: Arguments that are one-element float32 tensors known when the graph is made.
    """

    kind: str
    reads: Mapping[str, str]
    writes: Tensor
    attributes: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The computation of one execution plan; intermediate results and sums are float32, whatever the type in memory.

    Attributes:
        dtype: Type of all tensors in memory.
        inputs: Tensors read from memory; tensor number n has the identifier n + 1.
        operations: In topological order; the last one's result is written to memory.
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
        """The tensor written to memory."""
        return self.operations[-1].writes

    @property
    def in_memory(self) -> tuple[Tensor, ...]:
        """Inputs, then the output: tensor number n has the identifier n + 1, which plans refer to."""
        return (*self.inputs, self.output)

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in cache keys and compared in tests."""
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
