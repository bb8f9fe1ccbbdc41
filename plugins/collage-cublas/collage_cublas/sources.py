"""Locate the operands of a product, and the inputs that are rounded before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir

from collage_core.contract import (
    DEVICE_ALIGNMENT_BYTES,
    PRECISIONS,
    KernelFunction,
    Unsupported,
    converted,
    out_of_range,
)
from collage_core.ir.operators.narrowing import overflow
from collage_core.ir.values.content import constant_of
from collage_core.patterns import Match
from collage_cublas.library import DataType
from collage_cublas.reading import stored
from collage_cublas.ways import WAYS, Way


def ways_for(precision: str, found: Match) -> tuple[Way, ...]:
    """Return the ways of a precision, the better guess first: without a weight, every cast is extra work.

    Args:
        precision: The target's precision.
        found: Match of the product.
    """
    has_weight = any(constant_of(stored(found, name)[0]) is not None for name in ("a", "b"))
    return WAYS[precision] if has_weight else WAYS[precision][::-1]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the operands of a call come from.

    Attributes:
        operands: By operand, an input's position or a weight's name.
        constants: Constant to request from core, by the weight's name.
        casts: Inputs that are rounded first: position, offset in the workspace, and number of elements.
        cast_bytes: Workspace for the rounded inputs, at its end.
    """

    operands: Mapping[str, int | str]
    constants: Mapping[str, str]
    casts: tuple[tuple[int, int, int], ...] = ()
    cast_bytes: int = 0


def sources(function: KernelFunction, found: Match, way: Way) -> Sources | Unsupported:
    """Return the sources of a product's operands.

    Args:
        function: Function to lower.
        found: The product in it.
        way: How the product is computed.

    Returns:
        The sources, with offsets of casts relative to the start of their region; or which weight is out of the
        factors' range.
    """
    positions = {value: place for place, value in enumerate(function.model.graph.inputs)}
    operands: dict[str, int | str] = {}
    constants: dict[str, str] = {}
    casts: dict[int, tuple[int, int, int]] = {}
    end = 0
    for name in ("a", "b", "bias", "residual"):
        if name not in found.captures:
            continue
        value, _ = stored(found, name)
        tensor, dtype = constant_of(value), _ONNX.get(way.factors) if name in ("a", "b") else None
        if tensor is None:
            operands[name] = position = positions[value]
            if dtype is not None and position not in casts:
                spec = found.graph.spec(value)
                elements = spec.nbytes // spec.numpy_dtype.itemsize
                casts[position] = (position, end, elements)
                nbytes = elements * dtype.bitwidth // 8
                end += -(-nbytes // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
            continue
        # one tensor may be a factor and a bias
        operands[name] = key = f"{value.name}.{way.name}" if dtype else str(value.name)
        content = function.constants[str(value.name)]
        constants[key] = converted(content, dtype) if dtype else content
        if dtype is not None and (problem := overflow(str(value.name), tensor, dtype)):
            return out_of_range(problem, dtype)
    return Sources(operands=operands, constants=constants, casts=tuple(casts.values()), cast_bytes=end)


_ONNX: Mapping[DataType | None, onnx_ir.DataType] = MappingProxyType(
    {DataType.R_16F: PRECISIONS["fp16"], DataType.R_16BF: PRECISIONS["bf16"]}
)
