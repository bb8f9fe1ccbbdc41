"""A group of operators described for cuDNN: a graph, and the model's values for its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import onnx_ir

from collage_core.contract import Json, TensorSpec, Unsupported
from collage_core.patterns import Match
from collage_cudnn.graph import DataType, Graph, Layout, Operation, Tensor, row_major
from collage_cudnn.weights import Recipe

DTYPES: Mapping[onnx_ir.DataType | None, DataType] = {each.value: each for each in DataType}


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """The model's values for a tensor of a graph.

    Attributes:
        values: Value of the tensor; several where a weight is made from several.
        stored: Extents and strides in memory before any conversion.
        recipe: How the tensor is made from constants; also `AS_IS` for computed values.
    """

    values: tuple[onnx_ir.Value, ...]
    stored: Tensor
    recipe: Recipe = Recipe.AS_IS
    number: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A group described as a graph.

    Attributes:
        graph: The graph.
        operands: Its inputs, by name.
        result: The model's value that the graph computes.
        stored: Extents and strides in which core expects the result in memory.
    """

    graph: Graph
    operands: Mapping[str, Operand]
    result: onnx_ir.Value
    stored: Tensor


Describe = Callable[[Match, Layout], Described | Unsupported]
"""Describes a match; layouts matter to convolutions only, all other operators take tensors as they are stored."""


class Drawing:
    """A cuDNN graph under construction for a match; collects inputs and operations.

    Args:
        match: Match whose values the graph computes.
        dtype: Type of all tensors in memory.
    """

    def __init__(self, match: Match, dtype: DataType) -> None:
        self._match = match
        self._dtype = dtype
        self._inputs: list[Tensor] = []
        self._operations: list[Operation] = []
        self._operands: dict[str, Operand] = {}

    def input(
        self,
        name: str,
        dims: Sequence[int],
        strides: Sequence[int],
        values: onnx_ir.Value | Sequence[onnx_ir.Value],
        *,
        stored: Sequence[int] | None = None,
        recipe: Recipe = Recipe.AS_IS,
        number: float = 0.0,
    ) -> Tensor:
        """Add an input.

        Args:
            name: Name of the input.
            dims: Extents in the graph.
            strides: Strides in the graph.
            values: The model's value or values for the input.
            stored: Strides in memory; row-major by default.
            recipe: How the input is made from constants.
            number: Parameter of a recipe that takes one.
        """
        tensor = Tensor(name, tuple(dims), tuple(strides))
        lies = Tensor(name, tuple(dims), row_major(dims) if stored is None else tuple(stored))
        several = (values,) if isinstance(values, onnx_ir.Value) else tuple(values)
        self._inputs.append(tensor)
        self._operands[name] = Operand(several, lies, recipe, number)
        return tensor

    def add(
        self,
        kind: str,
        dims: Sequence[int],
        strides: Sequence[int],
        reads: Mapping[str, Tensor],
        *,
        attributes: Mapping[str, Json] | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> Tensor:
        """Add an operation.

        Args:
            kind: Method of `pygraph`.
            dims: Extents of its result.
            strides: Strides of its result.
            reads: Tensors it reads, by argument.
            attributes: Its other arguments.
            scalars: Arguments that are tensors of one number.
        """
        result = Tensor(f"{kind}_{len(self._operations)}", tuple(dims), tuple(strides))
        self._operations.append(
            Operation(
                kind=kind,
                reads={argument: tensor.name for argument, tensor in reads.items()},
                writes=result,
                attributes=dict(attributes or {}),
                scalars=dict(scalars or {}),
            )
        )
        return result

    def done(self, dims: Sequence[int]) -> Described:
        """Return the described graph.

        Args:
            dims: Extents of the result, which is row-major for core.
        """
        graph = Graph(dtype=self._dtype, inputs=tuple(self._inputs), operations=tuple(self._operations))
        lies = Tensor(graph.output.name, tuple(dims), row_major(dims))
        return Described(graph=graph, operands=self._operands, result=self._match.value, stored=lies)


def common_dtype(specs: Mapping[str, TensorSpec]) -> DataType | Unsupported:
    """Return the common type of the tensors, if cuDNN supports it here and extents are known and not 0."""
    found = {spec.dtype.name if spec.dtype else "no tensor" for spec in specs.values()}
    known = {dtype.name for dtype in DTYPES if dtype is not None}
    if len(found) > 1 or not found <= known:
        return Unsupported(f"it is about {' and '.join(sorted(found))}; one of {', '.join(sorted(known))} is computed")
    for spec in specs.values():
        if spec.shape is None or None in spec.shape:
            return Unsupported(f"the shape of {spec.name!r} is not known")
        if 0 in spec.shape:
            return Unsupported(f"{spec.name!r} {list(spec.static_shape)} has no elements")
    return DTYPES[next(iter(specs.values())).dtype]


def one_result(match: Match) -> Unsupported | None:
    """Reject a match if a value inside it has users outside; None if it has none."""
    if len(match.exits) > 1:
        return Unsupported(f"{', '.join(match.exits)} are read outside, and a graph here writes one result")
    return None
