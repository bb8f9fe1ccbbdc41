"""Bind a model's free input dimensions and infer the type and shape of every value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from collage_core.errors import InputShapeError, InvalidModelError, did_you_mean
from collage_core.ir.io.inference import static_shape
from collage_core.ir.values.size_range import Extent, Shape, SizeRange, is_static, largest_shape
from collage_core.ir.values.symbolic_sizes import SIZES_METADATA, say_sizes, sizes_of

_MOST_ELEMENTS = 2**60
"""Most elements of an input: sizes in bytes and offsets must stay below 2^63, the limit of ONNX and NumPy."""


def bound_shapes(
    model: ir.Model, input_shapes: Mapping[str, Sequence[Extent]], *, keep_free: bool = False
) -> dict[str, Shape]:
    """Return the shape of each non-constant tensor input, by name; the model is not modified.

    A symbol (`batch`) bound through one input, to a size or to a range, is bound wherever it occurs.

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
    shapes, symbols = _given_shapes(inputs, input_shapes or _declared(inputs))
    for name, value in inputs.items():
        if name in shapes or not isinstance(value.type, (ir.TensorType, ir.SparseTensorType)):
            continue
        if value.shape is None:
            if keep_free:
                continue
            raise InputShapeError(name, f"its rank is unknown; give it with {_flag(name, None)}")
        dims = [symbols.get(_symbol(dim), dim) for dim in value.shape]
        free = [str(dim) for dim in dims if isinstance(dim, ir.SymbolicDim)]
        if min((dim for dim in dims if isinstance(dim, int)), default=0) < 0:
            raise InvalidModelError(f"its input {name!r} is declared as {value.shape}, which has a negative extent")
        if free and keep_free:
            continue
        if free:
            raise InputShapeError(
                name,
                f"dimension {', '.join(free)} of {list(map(str, dims))} is free; "
                f"give the shape with {_flag(name, dims)}, or 1..N in place of a number for sizes that vary",
            )
        shapes[name] = tuple(dim for dim in dims if not isinstance(dim, ir.SymbolicDim))
    return shapes


def check_given_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[Extent]]) -> None:
    """Check that shapes fit the inputs they are given to, and each other; inputs without one do not matter.

    Raises:
        InputShapeError: If a shape contradicts the model or another shape, or a name is not an input of the model.
    """
    _given_shapes({str(value.name): value for value in model.graph.inputs if not value.is_initializer()}, input_shapes)


def range_symbols(model: ir.Model, input_shapes: Mapping[str, Sequence[Extent]]) -> dict[str, SizeRange]:
    """Return the sizes that vary with some input shapes: by their symbol, or by input and axis where there is none.

    Raises:
        InputShapeError: See `check_given_shapes`.
    """
    inputs = {str(value.name): value for value in model.graph.inputs if not value.is_initializer()}
    shapes, _ = _given_shapes(inputs, input_shapes)
    found: dict[str, SizeRange] = {}
    for name, shape in shapes.items():
        dims = inputs[name].shape or [None] * len(shape)
        for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
            if isinstance(extent, SizeRange):
                symbol = "" if dim is None else _symbol(dim)
                found[symbol or f"{name}.{axis}"] = extent
    return found


def bind_input_shapes(
    model: ir.Model, input_shapes: Mapping[str, Sequence[Extent]], *, keep_free: bool = False
) -> None:
    """Give every graph input its shape, in place; dimensions that stay free keep their symbols.

    An extent that is a range has a symbol, a new one if the model has none, and the sizes are in the input's metadata
    (`collage_core.ir.values.size_range`).

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
    _, symbols = _given_shapes(inputs, input_shapes or _declared(inputs))
    for name, value in inputs.items():
        value.metadata_props.pop(SIZES_METADATA, None)
        shape = shapes.get(name)
        if shape is None:
            if value.shape is not None:
                value.shape = ir.Shape([_with_symbol(dim, symbols.get(_symbol(dim), dim)) for dim in value.shape])
        elif static_shape(value) != shape:
            given = [None] * len(shape) if value.shape is None else list(value.shape)
            value.shape = ir.Shape(
                [
                    _with_symbol(dim, size, f"{name}.{axis}")
                    for axis, (dim, size) in enumerate(zip(given, shape, strict=True))
                ]
            )
            if not is_static(shape):
                say_sizes(value, shape)
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


def _declared(inputs: Mapping[str, ir.Value]) -> dict[str, Shape]:
    """Return the shapes with ranges of inputs of a model that was prepared before."""
    found = {name: sizes_of(value) for name, value in inputs.items()}
    return {name: shape for name, shape in found.items() if shape is not None}


def _given_shapes(
    inputs: Mapping[str, ir.Value], input_shapes: Mapping[str, Sequence[Extent]]
) -> tuple[dict[str, Shape], dict[str, Extent]]:
    """Return the shapes that the user gave by input, and what they assign to each symbol.

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
    shapes: dict[str, Shape] = {}
    symbols: dict[str, Extent] = {}
    owners: dict[str, str] = {}
    for name, given in input_shapes.items():
        value = inputs[name]
        if value.type is not None and not isinstance(value.type, (ir.TensorType, ir.SparseTensorType)):
            raise InputShapeError(name, "it is no tensor, so no shape can be given to it")
        shape = tuple(dim if isinstance(dim, SizeRange) else int(dim) for dim in given)
        said = f"[{', '.join(map(str, shape))}]"
        if any(isinstance(dim, int) and dim < 0 for dim in shape):
            raise InputShapeError(name, f"{said} has a negative dimension")
        if math.prod(dim or 1 for dim in largest_shape(shape)) > _MOST_ELEMENTS:
            raise InputShapeError(name, f"{said} has more elements than there are addresses")
        if value.shape is not None:
            if len(value.shape) != len(shape):
                raise InputShapeError(name, f"{said} has {len(shape)} dimensions, the model declares {value.shape}")
            for dim, size in zip(value.shape, shape, strict=True):
                if isinstance(dim, int) and dim != size:
                    raise InputShapeError(name, f"{said} contradicts the model's {value.shape}")
                symbol = _symbol(dim)
                if symbol and symbols.setdefault(symbol, size) != size:
                    raise InputShapeError(
                        name,
                        f"{said} makes {symbol} {size}, but input {owners[symbol]!r} makes it {symbols[symbol]}",
                    )
                owners.setdefault(symbol, name)
        shapes[name] = shape
    return shapes, symbols


def _with_symbol(
    dim: int | ir.SymbolicDim | None, size: Extent | ir.SymbolicDim, made_up: str = ""
) -> int | ir.SymbolicDim:
    """Return a dimension of a size, or of a symbol if it may have several."""
    if isinstance(size, (int, ir.SymbolicDim)):
        return size
    return dim if isinstance(dim, ir.SymbolicDim) and _symbol(dim) else ir.SymbolicDim(made_up)


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
