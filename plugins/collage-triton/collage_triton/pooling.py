"""Pooling: each output is a reduction over a window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir

from collage_triton.elements import FLOATS
from collage_triton.errors import Refused
from collage_triton.expand import Expander, Index, Rule, attribute, required
from collage_triton.reductions import extreme, over
from collage_triton.scalars import Scalars
from collage_triton.terms import Term
from collage_triton.windows import Windows, windows_of

_LEAST: Mapping[str, float] = MappingProxyType({"f32": -math.inf, "i8": -128, "u8": 0})
"""Value of padding in a maximum, by type."""


def _element(x: Expander, node: onnx_ir.Node, windows: Windows, index: Index, at: Index, padding: float) -> Term:
    """Return the input's element at a place of a window; where that is padding, a given number."""
    place, inside = windows.met(x.terms, index[2:], at)
    term = x.wide(required(node, 0), (*index[:2], *place))
    return term if inside is None else Scalars(x.terms).where(inside, term, padding)


def _max_pool(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if value is not node.outputs[0]:
        raise Refused("MaxPool's places as an output")
    windows, s = windows_of(node, attribute(node, "kernel_shape")), Scalars(x.terms)
    dtype = x.wide(required(node, 0), (*index[:2], *(x.terms.index(0) for _ in windows.shape))).dtype
    if dtype not in _LEAST:
        raise Refused(f"MaxPool of {dtype}")
    return extreme(
        x, s, "max", windows.kernel, index, lambda at, _: _element(x, node, windows, index, at, _LEAST[dtype])
    )


def _average_pool(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    windows, s, t = windows_of(node, attribute(node, "kernel_shape")), Scalars(x.terms), x.terms
    counts_padding = bool(attribute(node, "count_include_pad", 0))
    spare = 0 if counts_padding else 1  # ONNX's reference moves windows that end further behind it
    if any(windows.beyond(axis) > after + spare for axis, after in enumerate(windows.after)):
        raise Refused("AveragePool with windows that end behind the padding; where they begin is in dispute")
    total = over(x, "sum", windows.kernel, index, lambda at, _: _element(x, node, windows, index, at, 0.0))
    if total.dtype not in FLOATS:
        raise Refused(f"AveragePool of {total.dtype}")
    if windows.are_inside or counts_padding:
        return s.div(total, float(math.prod(windows.kernel)))

    def counted(at: Index, _: Term) -> Term:
        inside = windows.met(t, index[2:], at)[1]
        assert inside is not None
        return s.where(inside, t.const(1.0, "f32"), 0.0)

    return s.div(total, over(x, "sum", windows.kernel, index, counted))


POOLING: Mapping[str, Rule] = MappingProxyType({"AveragePool": _average_pool, "MaxPool": _max_pool})
