"""Provide values for a model's inputs: given by the user, or generated so that the model accepts them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import onnx_ir
import psutil

from collage.values.foreign_values import expected_foreign, fitted_foreign
from collage.values.npz import from_arrays, how_to_give
from collage.values.npz_file import read_arrays
from collage_core.errors import FeedError, did_you_mean
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.value_bounds import spec_of
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.size_range import Shape, SizeRange
from collage_core.ir.values.symbolic_sizes import shape_at
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

Given: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""Values for a model's inputs: by name, or in an NPZ file as `collage.values.npz` says."""

Draw: TypeAlias = Callable[[Any], Any]
"""Makes other random numbers of standard normal ones."""
DRAWS: Final[tuple[Draw, ...]] = (
    lambda normal: normal,
    np.abs,
    lambda normal: -np.abs(normal),
    lambda normal: 16 * np.abs(normal),
    lambda normal: np.abs(normal) / 16,
)
"""Ways to draw numbers, in the order in which they are tried."""

_FULL_RANGE: Final = (onnx_ir.DataType.UINT8, onnx_ir.DataType.INT8, onnx_ir.DataType.UINT16, onnx_ir.DataType.INT16)
"""Types drawn over their full range: pixels and quantised activations; wider integers are indices, masks, counts."""

_CARRIES_VALUES: Final = frozenset(
    {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"}
    | {"Slice", "Split", "Expand", "Tile", "Concat", "Gather"}
)
"""Operators whose output elements are elements of their first input."""


def required_inputs(graph: DataflowGraph) -> list[onnx_ir.Value]:
    """Return the graph inputs that are not constants."""
    return [value for value in graph.model.graph.inputs if constant_of(value) is None]


def random_inputs(
    graph: DataflowGraph, seed: int, draw: int = 0, sizes: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Any]:
    """Generate a random value for each input.

    Floats are standard normal. Booleans are random. Bytes and 16-bit integers, used for pixels and quantized
    values, cover their range. Wider integers are indices below the extent of the axis they select from; those
    that select nothing are zeros and ones, as in masks.

    Args:
        graph: A prepared model: inputs have static shapes, or sizes that vary.
        seed: The same seed gives the same values.
        draw: Which of `DRAWS` ways to draw numbers; others than the first are for models that make nothing of
            standard normal ones, such as a logarithm or a threshold.
        sizes: Size of each symbol in the inputs' shapes; the typical one if it is not among them.

    Raises:
        FeedError: If an input is not a tensor, or its shape is not known.
    """
    values: dict[str, Any] = {}
    for number, value in enumerate(required_inputs(graph)):
        name = str(value.name)
        spec = graph.spec(value)
        if spec.kind is ValueKind.SIZED and value.shape is not None:
            spec = spec.as_planned(shape_at(value.shape, graph.typical_sizes | dict(sizes)) or ())
        if spec.dtype is None or spec.shape is None or None in spec.shape:
            how = how_to_give(name, spec.type_name)
            advice = "give one with --inputs FILE.npz" + (f": {how}" if how else "")
            raise FeedError(name, f"no value can be made up for it; {advice}")
        if spec.dtype != onnx_ir.DataType.STRING and spec.nbytes > psutil.virtual_memory().total:
            size = f"{spec.nbytes / 1e9:,.0f} GB"
            raise FeedError(name, f"its shape {list(spec.static_shape)} takes {size}, more than this machine's memory")
        random = np.random.default_rng((seed, number))
        try:
            values[name] = _random(spec, random, _index_bound(graph, value), DRAWS[draw])
        except MemoryError:
            size = f"{spec.nbytes / 1e9:,.0f} GB"
            what = f"its shape {list(spec.static_shape)} takes {size}, and more while values are made up for it"
            raise FeedError(name, f"{what}: memory is too short. Give one with --inputs FILE.npz") from None
    return values


def sizes_given(graph: DataflowGraph, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return the size of each symbol of a prepared model that shapes of inputs give a size, and no range."""
    found: dict[str, int] = {}
    for value in required_inputs(graph):
        for dim, size in zip(value.shape or (), shapes.get(str(value.name), ()), strict=False):
            if isinstance(dim, onnx_ir.SymbolicDim) and isinstance(size, int):
                found[str(dim.value)] = size
    return found


def specs_as_given(model: onnx_ir.Model, shapes: Mapping[str, Shape]) -> list[TensorSpec]:
    """Return the specs of a model's inputs as given, with bound shapes replaced; extents that vary are None."""
    inputs = [spec_of(value) for value in model.graph.inputs if not value.is_initializer()]
    known = {
        name: tuple(None if isinstance(extent, SizeRange) else extent for extent in shape)
        for name, shape in shapes.items()
    }
    return [dataclasses.replace(spec, shape=known.get(spec.name, spec.shape)) for spec in inputs]


def checked_inputs(graph: DataflowGraph, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for exactly the inputs of a prepared model; see `checked_values`."""
    return checked_values((graph.spec(value) for value in required_inputs(graph)), values)


def checked_values(specs: Iterable[TensorSpec], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for exactly the inputs of a model, with the required shapes and types.

    Args:
        specs: Specs of the inputs.
        values: Values by name, or the arrays that represent them in a file.

    Raises:
        FeedError: If one is missing, unknown or does not fit.
    """
    wanted = {spec.name: spec for spec in specs}
    values = from_arrays(values, {name: _type_name(spec) for name, spec in wanted.items()})
    for name in values:
        if name not in wanted:
            known = ", ".join(wanted) or "none"
            raise FeedError(name, f"the model has no such input; it has {known}{did_you_mean(name, wanted)}")
    checked: dict[str, Any] = {}
    for name, spec in wanted.items():
        if name not in values:
            how = how_to_give(name, spec.type_name)
            raise FeedError(name, f"no value is given for this input; {_needed(spec)}" + (f"; {how}" if how else ""))
        if spec.dtype is None:
            checked[name] = fitted_foreign(values[name], spec)
            continue
        try:
            array = np.asarray(values[name])
        except ValueError as error:  # lists of different lengths
            raise FeedError(name, f"it cannot be read as an array, {_needed(spec)}: {error}") from error
        if spec.dtype == onnx_ir.DataType.STRING:
            is_of_type = array.dtype.kind in "OUS"
        else:
            is_of_type = array.dtype == spec.numpy_dtype
        if not is_of_type:
            raise FeedError(name, f"it is {array.dtype}, {_needed(spec)}")
        if spec.shape is not None and None not in spec.shape and array.shape != spec.shape:
            raise FeedError(name, f"it has shape {array.shape}, {_needed(spec)}")
        checked[name] = array
    return checked


def _needed(spec: TensorSpec) -> str:
    if spec.dtype is None:
        return f"the model needs {expected_foreign(spec)}"
    kind = "strings" if spec.dtype == onnx_ir.DataType.STRING else str(spec.numpy_dtype)
    return f"the model needs {kind}" + ("" if spec.shape is None else f" of shape {spec.shape}")


def _type_name(spec: TensorSpec) -> str:
    return spec.type_name if spec.dtype is None else f"tensor({spec.dtype.name.lower()})"


def given_values(inputs: Given) -> dict[str, Any]:
    """Return values as they are given, or the arrays of the file that contains them.

    Raises:
        FeedError: If the file cannot be read.
    """
    return dict(inputs) if isinstance(inputs, Mapping) else read_arrays(Path(inputs))


def load_inputs(graph: DataflowGraph, inputs: Given) -> dict[str, Any]:
    """Load values for all inputs of a prepared model.

    Raises:
        FeedError: If a file cannot be read, or a value does not fit the model.
    """
    return checked_inputs(graph, given_values(inputs))


def _random(spec: TensorSpec, random: np.random.Generator, bound: int | None, draw: Draw) -> np.ndarray[Any, Any]:
    dtype = spec.dtype
    assert dtype is not None
    assert spec.shape is not None
    shape = tuple(extent for extent in spec.shape if extent is not None)  # of strings too, which are foreign values
    if dtype == onnx_ir.DataType.STRING:
        words = np.array(["collage", "of", "toolchains", ""], dtype=object)
        return np.asarray(words[random.integers(0, len(words), shape)], dtype=object)
    if dtype == onnx_ir.DataType.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    kind = spec.numpy_dtype
    if dtype.is_integer():
        if bound is not None:
            return random.integers(0, max(1, bound), shape).astype(kind)
        if dtype in _FULL_RANGE:
            limits = np.iinfo(kind)
            return random.integers(limits.min, limits.max + 1, shape).astype(kind)
        mask = np.array(random.integers(0, 2, shape), dtype=kind)
        mask[(..., slice(1)) if shape else ()] = 1  # a row that masks everything makes Softmax divide zero by zero
        return mask
    if kind.kind == "c":
        real, imaginary = random.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary, dtype=kind)
    values: np.ndarray[Any, Any] = np.asarray(draw(random.standard_normal(shape)), dtype=np.float32).astype(kind)
    return values


def _index_bound(graph: DataflowGraph, value: onnx_ir.Value) -> int | None:
    """Return the smallest extent of the axes that elements of `value` select from.

    Operators that pass the values on are followed.
    """
    bound: int | None = None
    seen: set[onnx_ir.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for node, position in current.uses():
            extents = _selected_extents(graph, node, position)
            if extents:
                bound = min(extents) if bound is None else min(bound, *extents)
            elif node.op_type in _CARRIES_VALUES and (position == 0 or node.op_type == "Concat"):
                waiting.extend(node.outputs)
    return bound


def _selected_extents(graph: DataflowGraph, node: onnx_ir.Node, position: int) -> list[int]:
    """Return the extents of the axes a node selects from with its input at `position`; empty if none."""
    if node.op_type == "OneHot" and position == 0:
        depth = constant_of(node.inputs[1])
        return [] if depth is None or not depth.size else [int(depth.numpy().reshape(-1)[0])]
    if position != 1 or node.inputs[0] is None:
        return []
    shape = graph.spec(node.inputs[0]).shape
    if shape is None or not shape:
        return []
    match node.op_type:
        case "Gather" | "GatherElements" | "ScatterElements" | "Scatter":
            attribute = node.attributes.get("axis")
            axes: Iterable[int] = [attribute.as_int() if attribute is not None else 0]
        case "GatherND" | "ScatterND":
            axes = range(len(shape))
        case _:
            return []
    # an axis that is not there is refused by whoever runs the node
    extents = [shape[axis] for axis in axes if -len(shape) <= axis < len(shape)]
    return [extent for extent in extents if extent is not None]
