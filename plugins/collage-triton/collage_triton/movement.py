"""Operators that move elements: each is arithmetic on indices, sometimes with a selection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir

from collage_triton.elements import FLOATS
from collage_triton.errors import Refused
from collage_triton.expand import (
    Expander,
    Index,
    Rule,
    attribute,
    axis_of,
    dtype_of,
    numbers,
    operand,
    required,
    shape_of,
)
from collage_triton.terms import Term


def _transpose(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    order = attribute(node, "perm") or tuple(reversed(range(len(index))))
    source: list[Term] = list(index)
    for place, axis in enumerate(order):
        source[axis] = index[place]
    return x.at(required(node, 0), tuple(source))


def _reshape(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    """Expand Reshape, Flatten, Squeeze and Unsqueeze: the same offset under another shape."""
    source = required(node, 0)
    flat = x.terms.ravel(index, shape_of(value))
    return x.at(source, x.terms.unravel(flat, shape_of(source)))


def _expand(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    return x.broadcast(required(node, 0), index)


def _concat(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    axis = axis_of(node, len(index), 0)
    parts = []
    start = 0
    for place in range(len(node.inputs)):
        source = required(node, place)
        extent = shape_of(source)[axis]
        if extent:
            parts.append((source, start, extent))
        start += extent
    if len(parts) == 1:
        return x.at(parts[0][0], index)
    return _chosen(x, index, axis, parts)


def _chosen(x: Expander, index: Index, axis: int, parts: list[tuple[onnx_ir.Value, int, int]]) -> Term:
    """Return the element of the part in which an index lies: the first if it is before the second, and so on."""
    t = x.terms
    source, start, extent = parts[0]
    at = index[axis]
    inside = t.apply("lt", at, t.index(start + extent), dtype="i1")
    if len(parts) > 1 and start:
        inside = t.apply("and", inside, t.apply("ge", at, t.index(start), dtype="i1"))
    elif len(parts) == 1:
        inside = t.apply("ge", at, t.index(start), dtype="i1")
    own = t.within(inside, t.plus(at, t.index(-start)), extent)
    term = x.at(source, (*index[:axis], own, *index[axis + 1 :]))
    if len(parts) == 1:
        return term
    return t.apply("where", inside, term, _chosen(x, index, axis, parts[1:]), dtype=term.dtype)


def _split(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    axis = axis_of(node, len(index), 0)
    start = 0
    for output in node.outputs:
        if output is value:
            break
        start += shape_of(output)[axis]
    return x.at(required(node, 0), _moved(x, index, axis, start, 1))


def _moved(x: Expander, index: Index, axis: int, start: int, step: int) -> Index:
    at = x.terms.plus(x.terms.times(index[axis], step), x.terms.index(start))
    return (*index[:axis], at, *index[axis + 1 :])


def _slice(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source = required(node, 0)
    shape = shape_of(source)
    starts = numbers(node, 1, "starts") or ()
    axes = numbers(node, 3, "axes") or tuple(range(len(starts)))
    steps = numbers(node, 4, "steps") or (1,) * len(starts)
    for axis, start, step in zip(axes, starts, steps, strict=True):
        axis %= len(shape)
        extent = shape[axis]
        first = min(max(start + extent if start < 0 else start, 0), extent if step > 0 else extent - 1)
        index = _moved(x, index, axis, first, step)
    return x.at(source, index)


def _gather(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source, chosen = required(node, 0), required(node, 1)
    axis = axis_of(node, len(shape_of(source)), 0)
    rank = len(shape_of(chosen))
    at = _position(x, x.at(chosen, index[axis : axis + rank]), shape_of(source)[axis])
    return x.at(source, (*index[:axis], at, *index[axis + rank :]))


def _gather_elements(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source = required(node, 0)
    axis = axis_of(node, len(index), 0)
    at = _position(x, x.at(required(node, 1), index), shape_of(source)[axis])
    return x.at(source, (*index[:axis], at, *index[axis + 1 :]))


def _position(x: Expander, chosen: Term, extent: int) -> Term:
    """Return a data-dependent index counted from the front.

    ONNX does not define what an index out of range reads, so it reads element 0.
    """
    t = x.terms
    zero, end = t.const(0, chosen.dtype), t.const(extent, chosen.dtype)
    wrapped = t.apply(
        "where", t.apply("lt", chosen, zero, dtype="i1"), t.apply("add", chosen, end), chosen, dtype=chosen.dtype
    )
    inside = t.apply(
        "and",
        t.apply("ge", wrapped, zero, dtype="i1"),
        t.apply("lt", wrapped, end, dtype="i1"),
    )
    return t.within(inside, t.cast(wrapped, "i32"), extent)


def _pad(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    t = x.terms
    source = required(node, 0)
    shape = shape_of(source)
    pads = numbers(node, 1, "pads") or ()
    axes = numbers(node, 3, "axes") or tuple(range(len(shape)))
    before = dict.fromkeys(range(len(shape)), 0) | {
        axis % len(shape): pad for axis, pad in zip(axes, pads[: len(axes)], strict=True)
    }
    mode = attribute(node, "mode", "constant")
    if mode not in ("constant", "edge"):
        raise Refused(f"Pad in mode {mode}")
    inside = t.const(True, "i1")
    own = []
    for axis, extent in enumerate(shape):
        at = t.plus(index[axis], t.index(-before[axis]))
        if before[axis] == 0 and shape_of(value)[axis] == extent:
            own.append(at)
            continue
        above = t.apply("ge", at, t.index(0), dtype="i1")
        below = t.apply("lt", at, t.index(extent), dtype="i1")
        if mode == "edge":
            last = t.apply("where", below, at, t.index(extent - 1), dtype="i32")
            own.append(t.within(above, last, extent))
        else:
            here = t.apply("and", above, below)
            own.append(t.within(here, at, extent))
            inside = here if inside.op == "const" else t.apply("and", inside, here)
    dtype = dtype_of(value)
    filling = operand(node, 2)
    other = t.const(attribute(node, "value", 0.0), "f32" if dtype in FLOATS else dtype)
    other = t.cast(other, dtype) if filling is None else x.at(filling, (t.index(0),) * len(shape_of(filling)))
    if mode == "constant" and math.prod(shape) == 0:
        return other
    term = x.at(source, tuple(own))
    return term if inside.op == "const" else t.apply("where", inside, term, other, dtype=dtype)


def _tile(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source = required(node, 0)
    pairs = zip(index, shape_of(source), strict=True)
    return x.at(source, tuple(x.terms.remainder(at, extent) for at, extent in pairs))


def _depth_to_space(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    """Expand DepthToSpace.

    Channels are (c, r, s) in mode CRD, (r, s, c) in mode DCR, for row and column inside a block.
    """
    t, size = x.terms, int(attribute(node, "blocksize"))
    b, c, h, w = index
    r, s = t.remainder(h, size), t.remainder(w, size)
    if attribute(node, "mode", "DCR") == "CRD":
        channel = t.plus(t.times(t.plus(t.times(c, size), r), size), s)
    else:
        channel = t.plus(t.times(t.plus(t.times(r, size), s), shape_of(value)[1]), c)
    return x.at(required(node, 0), (b, channel, t.quotient(h, size), t.quotient(w, size)))


def _space_to_depth(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    t, size = x.terms, int(attribute(node, "blocksize"))
    b, c, h, w = index
    channels = shape_of(required(node, 0))[1]
    block = t.quotient(c, channels)
    row = t.plus(t.times(h, size), t.quotient(block, size))
    column = t.plus(t.times(w, size), t.remainder(block, size))
    return x.at(required(node, 0), (b, t.remainder(c, channels), row, column))


def _trilu(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    t = x.terms
    [by] = numbers(node, 1, "k") or (0,)
    row = t.plus(index[-2], t.index(by))
    op = "ge" if attribute(node, "upper", 1) else "le"
    kept = t.apply(op, index[-1], row, dtype="i1")
    dtype = dtype_of(value)
    zero = t.cast(t.const(0, "f32" if dtype in FLOATS else dtype), dtype)
    return t.apply("where", kept, x.at(required(node, 0), index), zero, dtype=dtype)


MOVEMENT: Mapping[str, Rule] = MappingProxyType(
    {
        "Concat": _concat,
        "DepthToSpace": _depth_to_space,
        "Expand": _expand,
        "Flatten": _reshape,
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "Pad": _pad,
        "Reshape": _reshape,
        "Slice": _slice,
        "SpaceToDepth": _space_to_depth,
        "Split": _split,
        "Squeeze": _reshape,
        "Tile": _tile,
        "Transpose": _transpose,
        "Trilu": _trilu,
        "Unsqueeze": _reshape,
    }
)

TRAILING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that keep every offset; they are no-ops after a kernel's last loop."""
