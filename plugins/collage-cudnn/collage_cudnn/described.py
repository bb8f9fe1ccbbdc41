"""What a group of operators is for cuDNN: a graph, and what its inputs are in the model."""

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
    """What a tensor of a graph is in the model.

    Attributes:
        values: The value it is; several where a weight is made of several.
        stored: Extents and strides of how it lies in memory before anything is converted.
        recipe: How it is made of constants; `AS_IS` is also for what is computed.
    """

    values: tuple[onnx_ir.Value, ...]
    stored: Tensor
    recipe: Recipe = Recipe.AS_IS
    number: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A group as a graph.

    Attributes:
        graph: The graph.
        operands: Its inputs, by name.
        result: What comes out.
        stored: How core wants that to lie in memory.
    """

    graph: Graph
    operands: Mapping[str, Operand]
    result: onnx_ir.Value
    stored: Tensor


Describe = Callable[[Match, Layout], Described | Unsupported]
"""Reads a match; layouts matter to convolutions only, everything else takes tensors as they lie."""


class Drawing:
    """A graph being drawn for a match; collects inputs and operations.

    Args:
        match: Whose values it is about.
        dtype: Of everything in memory.
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
        """Adds an input.

        Args:
            name: Its name.
            dims: Extents as the graph sees them.
            strides: Strides as the graph sees them.
            values: What it is in the model.
            stored: Strides as it lies in memory; row-major unless told.
            recipe: How it is made of constants.
            number: For a recipe that takes one.
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
        """Adds an operation.

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
        """The whole.

        Args:
            dims: Extents of the result, which core wants row-major.
        """
        graph = Graph(dtype=self._dtype, inputs=tuple(self._inputs), operations=tuple(self._operations))
        lies = Tensor(graph.output.name, tuple(dims), row_major(dims))
        return Described(graph=graph, operands=self._operands, result=self._match.value, stored=lies)


def common_dtype(specs: Mapping[str, TensorSpec]) -> DataType | Unsupported:
    """The type of all of these, where they have one that cuDNN takes here, and extents that are known and not 0."""
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
    """Why a match is none for cuDNN, if what is between its operators is read outside."""
    if len(match.exits) > 1:
        return Unsupported(f"{', '.join(match.exits)} are read outside, and a graph here writes one result")
    return None
