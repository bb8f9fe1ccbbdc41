"""Bind a model's free input dimensions and infer the type and shape of every value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from collage_core.errors import InputShapeError, InvalidModelError, did_you_mean
from collage_core.ir.io.inference import static_shape

_MOST_ELEMENTS = 2**60
"""Most elements of an input: sizes in bytes and offsets must stay below 2^63, the limit of ONNX and NumPy."""


def bound_shapes(
    model: ir.Model, input_shapes: Mapping[str, Sequence[int]], *, keep_free: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the static shape of each non-constant tensor input, by name; the model is not modified.

    A symbol (`batch`) bound through one input is bound wherever it occurs.

    Args:
        model: The model.
        input_shapes: Shapes of inputs, by name.
        keep_free: Whether dimensions may stay free; inputs with such have no shape in the result.

    Raises:
        InputShapeError: If a free dimension stays free that may not, a shape contradicts the model or another shape, or
            a name is not an input of the model.
        InvalidModelError: If the model itself declares an invalid shape.
    """
    inputs = {str(value.name): value for value in model.graph.inputs if not value.is_initializer()}
    shapes, symbols = _given_shapes(inputs, input_shapes)
    for name, value in inputs.items():
        if name in shapes or not isinstance(value.type, (ir.TensorType, ir.SparseTensorType)):
            continue
        if value.shape is None:
            if keep_free:
                continue
            raise InputShapeError(name, f"its rank is unknown; give it with {_flag(name, None)}")
        dims = _with_bound(value.shape, symbols)
        free = [str(dim) for dim in dims if not isinstance(dim, int)]
        if min((dim for dim in dims if isinstance(dim, int)), default=0) < 0:
            raise InvalidModelError(f"its input {name!r} is declared as {value.shape}, which has a negative extent")
        if free and keep_free:
            continue
        if free:
            raise InputShapeError(
                name,
                f"dimension {', '.join(free)} of {list(map(str, dims))} is free; "
                f"give the shape with {_flag(name, dims)}",
            )
        shapes[name] = tuple(int(dim) for dim in dims if isinstance(dim, int))
    return shapes


def check_given_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[int]]) -> None:
    """Check that shapes fit the inputs they are given to, and each other; inputs without one do not matter.

    Raises:
        InputShapeError: If a shape contradicts the model or another shape, or a name is not an input of the model.
    """
    _given_shapes({str(value.name): value for value in model.graph.inputs if not value.is_initializer()}, input_shapes)


def bind_input_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[int]], *, keep_free: bool = False) -> None:
    """Give every graph input its static shape, in place; dimensions that stay free keep their symbols.

    Args:
        model: The model.
        input_shapes: Shapes of inputs, by name.
        keep_free: Whether dimensions may stay free.

    Raises:
        ModelError: As `bound_shapes` does.
    """
    shapes = bound_shapes(model, input_shapes, keep_free=keep_free)
    free = free_inputs(model)
    inputs = {str(value.name): value for value in model.graph.inputs if not value.is_initializer()}
    _, symbols = _given_shapes(inputs, input_shapes)
    for name, value in inputs.items():
        if name in shapes and static_shape(value) != shapes[name]:
            value.shape = ir.Shape(shapes[name])
        elif name not in shapes and value.shape is not None:
            value.shape = ir.Shape(_with_bound(value.shape, symbols))
    if input_shapes or free:
        _forget_shapes(model)


def free_inputs(model: ir.Model) -> frozenset[str]:
    """Return the names of a model's graph inputs whose shape is neither static nor determined by a constant.

    The model is taken as given, before preparation.
    """
    return frozenset(
        str(value.name)
        for value in model.graph.inputs
        if isinstance(value.type, (ir.TensorType, ir.SparseTensorType))
        and static_shape(value) is None
        and not value.is_initializer()
    )


def free_symbols(model: ir.Model) -> frozenset[str]:
    """Return the names of the free dimensions of a model's inputs."""
    shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
    return frozenset(_symbol(dim) for shape in shapes for dim in shape) - {""}


def _given_shapes(
    inputs: Mapping[str, ir.Value], input_shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Return the shapes that the user gave by input, and the value they assign to each symbol.

    Raises:
        InputShapeError: See `check_given_shapes`.
    """
    for name in input_shapes:
        if name not in inputs:
            raise InputShapeError(
                name,
                f"the model has no such input to give a shape to; it has {', '.join(map(repr, inputs)) or 'none'}"
                f"{did_you_mean(name, inputs)}",
            )
    shapes: dict[str, tuple[int, ...]] = {}
    symbols: dict[str, int] = {}
    owners: dict[str, str] = {}
    for name, given in input_shapes.items():
        value = inputs[name]
        if value.type is not None and not isinstance(value.type, (ir.TensorType, ir.SparseTensorType)):
            raise InputShapeError(name, "it is no tensor, so no shape can be given to it")
        shape = [int(dim) for dim in given]
        if any(dim < 0 for dim in shape):
            raise InputShapeError(name, f"{shape} has a negative dimension")
        if math.prod(dim or 1 for dim in shape) > _MOST_ELEMENTS:
            raise InputShapeError(name, f"{shape} has more elements than there are addresses")
        if value.shape is not None:
            if len(value.shape) != len(shape):
                raise InputShapeError(name, f"{shape} has {len(shape)} dimensions, the model declares {value.shape}")
            for dim, size in zip(value.shape, shape, strict=True):
                if isinstance(dim, int) and dim != size:
                    raise InputShapeError(name, f"{shape} contradicts the model's {value.shape}")
                symbol = _symbol(dim)
                if symbol and symbols.setdefault(symbol, size) != size:
                    raise InputShapeError(
                        name,
                        f"{shape} makes {symbol} {size}, but input {owners[symbol]!r} makes it {symbols[symbol]}",
                    )
                owners.setdefault(symbol, name)
        shapes[name] = tuple(shape)
    return shapes, symbols


def _with_bound(shape: ir.Shape, symbols: Mapping[str, int]) -> list[int | ir.SymbolicDim]:
    """Return the dimensions of a shape with the sizes that are known of symbols."""
    return [symbols.get(_symbol(dim), dim) for dim in shape]


def _symbol(dim: int | ir.SymbolicDim) -> str:
    return "" if isinstance(dim, int) or dim.value is None else str(dim.value)


def _flag(name: str, dims: Sequence[Any] | None) -> str:
    shape = "..." if dims is None else ",".join(str(d) if isinstance(d, int) else "N" for d in dims)
    return f"--input-shapes {name}:[{shape}]"


def _forget_shapes(model: ir.Model) -> None:
    """Drop the declared shapes of computed values.

    An exporter's declarations may hold sizes seen while tracing, or symbols that now have a value. Those of
    operators that nobody here can infer are kept.
    """
    for node in model.graph.all_nodes():
        if node.domain in ("", "ai.onnx"):
            for value in node.outputs:
                value.shape = None
