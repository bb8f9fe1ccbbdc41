"""Symbolic extents of values: which sizes the symbols of a model's inputs have, and what extents follow from them."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import onnx_ir

from collage_core.errors import ModelError
from collage_core.ir.values.size_range import Extent, Shape, SizeRange

SIZES_METADATA: Final = "collage.sizes"
"""Metadata key of a model's input that holds its `Shape` as JSON; a range is the text of a `SizeRange`."""

_SUM: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?: \+ ([0-9]{1,12}))?")
"""The commonest expressions: a symbol, or a symbol and a number."""

_SMALL_POWER: Final = re.compile(r"\*\*\s*[0-9](?![0-9.])(?!\s*\*\*)")
"""A power with a number below ten, as shape inference writes `n**2` for the product of two equal extents."""
_MOST_POWERS, _MOST_LETTERS = 4, 1000
"""More of these no exporter writes, and evaluating them may take minutes."""

MOST_SIZE: Final = 1 << 40
"""Largest size that may be written there: larger ones have no memory."""


def say_sizes(value: onnx_ir.Value, shape: Sequence[Extent]) -> None:
    """Write the sizes of a model's input into its metadata."""
    parts = [str(extent) if isinstance(extent, SizeRange) else extent for extent in shape]
    value.metadata_props[SIZES_METADATA] = json.dumps(parts)


def sizes_of(value: onnx_ir.Value) -> Shape | None:
    """Return the sizes that the metadata of a model's input has; None if it has none.

    Raises:
        ModelError: If they are no shape, or contradict that of the input.
    """
    text = value.metadata_props.get(SIZES_METADATA)
    if text is None:
        return None
    try:
        shape = tuple(_read(part) for part in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"value {value.name!r}: its metadata {SIZES_METADATA!r} is no shape: {error}") from error
    if value.shape is None or len(value.shape) != len(shape) or any(map(_contradict, value.shape, shape)):
        raise ModelError(f"value {value.name!r}: its metadata {SIZES_METADATA!r} contradicts its shape {value.shape}")
    return shape


def size_symbols(inputs: Iterable[onnx_ir.Value]) -> dict[str, SizeRange]:
    """Return the sizes of each symbol in the shapes of a model's inputs.

    Raises:
        ModelError: If the sizes in an input's metadata are none, or a symbol has two.
    """
    symbols: dict[str, SizeRange] = {}
    for value in inputs:
        for dim, extent in zip(value.shape or (), sizes_of(value) or (), strict=False):
            if isinstance(extent, SizeRange) and isinstance(dim, onnx_ir.SymbolicDim):
                name = dim.value or ""
                if symbols.setdefault(name, extent) != extent:
                    raise ModelError(f"its dimension {name!r} has the sizes {symbols[name]} and {extent}")
    return symbols


def typical_sizes(symbols: Mapping[str, SizeRange]) -> dict[str, int]:
    """Return the typical size of each symbol."""
    return {name: sizes.typical for name, sizes in symbols.items()}


def shape_at(shape: onnx_ir.Shape, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return a shape, whose extents may be expressions of symbols, for given sizes; None if it has other symbols.

    Examples:
        >>> shape_at(onnx_ir.Shape(["n", onnx_ir.SymbolicDim("floor(n/2) + 1")]), {"n": 7})
        (7, 4)
    """
    known = tuple(sizes.items())
    extents = []
    for dim in shape:
        size = dim if isinstance(dim, int) else _extent_at(dim.value, known)
        if size is None:
            return None
        extents.append(size)
    return tuple(extents)


@functools.lru_cache(maxsize=1 << 14)
def _extent_at(expression: str | None, sizes: tuple[tuple[str, int], ...]) -> int | None:
    """Return the value of an expression; kept, since SymPy takes 0.1 ms for it, and a model has few that differ."""
    if expression is None:
        return None
    if (plain := _sum_of(expression)) is not None:
        symbol, constant = plain
        size = dict(sizes).get(symbol)
        return None if size is None else size + constant
    if not _is_evaluated_soon(expression):
        return None
    try:
        value = onnx_ir.SymbolicDim(expression).evaluate(dict(sizes))
    except ValueError:  # any text may stand there
        return None
    return value if isinstance(value, int) else None


def _is_evaluated_soon(expression: str) -> bool:
    """Return whether an expression has a sensible length, and no powers that take minutes.

    Examples:
        >>> [_is_evaluated_soon(text) for text in ("n**2*m", "9**9**9", "9**99", "n+" * 1000 + "1")]
        [True, False, False, False]
    """
    powers = expression.count("**")
    small = powers == len(_SMALL_POWER.findall(expression)) <= _MOST_POWERS
    return small and len(expression) <= _MOST_LETTERS


@functools.lru_cache(maxsize=1 << 10)
def _sum_of(expression: str) -> tuple[str, int] | None:
    """Return the symbol and the constant that an expression adds; None if it is no such sum.

    Examples:
        >>> _sum_of("past"), _sum_of("past + 1"), _sum_of("floor(n/2)")
        (('past', 0), ('past', 1), None)
    """
    found = _SUM.fullmatch(expression)
    return None if found is None else (found[1], int(found[2] or 0))


def largest_at(shape: onnx_ir.Shape, symbols: Mapping[str, SizeRange]) -> tuple[int, ...] | None:
    """Return the largest extents among those at the least, the typical and the largest size of each symbol.

    No other size has a larger one where extents grow or shrink with each symbol, as those of layers do.
    """
    ends = [sorted({sizes.least, sizes.typical, sizes.most}) for sizes in symbols.values()]
    shapes = [shape_at(shape, dict(zip(symbols, each, strict=True))) for each in itertools.product(*ends)]
    known = [each for each in shapes if each is not None]
    return tuple(map(max, zip(*known, strict=True))) if len(known) == len(shapes) else None


def input_shapes(model: onnx_ir.Model) -> dict[str, Shape]:
    """Return the shape of each input that has one without free dimensions, by name; constants are no inputs.

    Raises:
        ModelError: If the sizes in an input's metadata are none.
    """
    found: dict[str, Shape] = {}
    for value in model.graph.inputs:
        if value.is_initializer():
            continue
        shape = sizes_of(value)
        if shape is None and value.shape is not None:
            shape = shape_at(value.shape, {})
        if shape is not None:
            found[str(value.name)] = shape
    return found


def _read(part: object) -> Extent:
    if isinstance(part, str):
        return SizeRange.parse(part)
    if type(part) is int and 0 <= part <= MOST_SIZE:
        return part
    raise ValueError(f"{part!r} is no extent")


def _contradict(dim: int | onnx_ir.SymbolicDim, size: Extent) -> bool:
    return dim != size if isinstance(dim, int) else isinstance(size, int)
