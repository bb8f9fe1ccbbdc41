"""Matrix products and convolutions: tiles of two output axes, and a sum over a third by `tl.dot`.

A convolution is the product of its weights, one row per output channel, and its input's windows, one column per
output position; the windows are formed by index arithmetic as they are loaded (implicit GEMM).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx_ir

from collage_triton.elements import FLOATS
from collage_triton.errors import Refused
from collage_triton.expand import Expander, Index, Rule, attribute, operand, required, shape_of
from collage_triton.reductions import over
from collage_triton.scalars import Scalars
from collage_triton.terms import Term, Terms, Var, value_of
from collage_triton.windows import windows_of

MOST_BATCHES = 65535
"""Largest extent of a grid's second axis.

CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Assignment of a product's result axes to its tiles.

    Attributes:
        index: The result's index, made of the three loop variables.
        outer: Loop variable along axis 0 of a tile.
        inner: Loop variable along axis 1 of a tile.
        batch: Loop variable along the grid's second axis.
    """

    index: Index
    outer: Var
    inner: Var
    batch: Var


def layout_of(t: Terms, node: onnx_ir.Node) -> Layout:
    """Return the layout of a product's result: groups of a convolution and batches are separate products.

    Raises:
        Refused: If there are more than a grid supports.
    """
    shape = shape_of(node.outputs[0])
    if node.op_type in ("Conv", "ConvTranspose"):
        groups = int(attribute(node, "group", 1))
        outer, inner = t.var("x", 0, shape[1] // groups), t.var("y", 1, shape[0] * math.prod(shape[2:]))
        batch = t.var("b", None, groups)
        place = t.unravel(t.of(inner), (shape[0], *shape[2:]))
        channel = t.plus(t.times(t.of(batch), shape[1] // groups), t.of(outer))
        return Layout((place[0], channel, *place[1:]), outer, inner, batch)
    split = len(shape) - 2 if len(shape_of(required(node, 1))) > 2 else 0
    outer, inner = t.var("x", 0, math.prod(shape[split:-1])), t.var("y", 1, shape[-1])
    if math.prod(shape[:split]) > MOST_BATCHES:
        raise Refused(f"{math.prod(shape[:split])} products of one batch; a grid takes {MOST_BATCHES}")
    batch = t.var("b", None, math.prod(shape[:split]))
    rows = t.unravel(t.of(outer), shape[split:-1])
    return Layout((*t.unravel(t.of(batch), shape[:split]), *rows, t.of(inner)), outer, inner, batch)


def _inner(x: Expander, extent: int) -> tuple[Var, Var]:
    return x.terms.var("ka", 1, extent), x.terms.var("kb", 0, extent)


def _product(x: Expander, node: onnx_ir.Node, left: Term, right: Term, inner: tuple[Var, Var]) -> Term:
    """Return the sum of products, in float32.

    Raises:
        Refused: If its operands do not lie along the two axes of a tile.
    """
    if left.dtype not in FLOATS or left.dtype != right.dtype:
        raise Refused(f"{node.op_type} of {left.dtype}; products are of floats here")
    if any(var.axis == 1 for var in left.free - {inner[0]}) or any(var.axis == 0 for var in right.free - {inner[1]}):
        raise Refused(f"what follows {node.op_type} wants its elements in another order than tiles have them")
    x.products.add(node)
    left, right = _narrow(x.terms, left, right)
    if inner[0].extent == 1:
        return Scalars(x.terms).mul(x.terms.cast(left, "f32"), x.terms.cast(right, "f32"))
    return x.terms.dot(left, right, inner, x.precision if left.dtype == "f32" else "ieee")


def _narrow(t: Terms, left: Term, right: Term) -> tuple[Term, Term]:
    """Return both operands in the 16-bit type they were widened from, for tensor cores; the result is the same.

    A product of two 16-bit floats is exact in float32, in which `tl.dot` accumulates in either case.
    """
    for dtype in ("f16", "bf16"):
        first, second = _in_type(t, left, dtype), _in_type(t, right, dtype)
        if first is not None and second is not None:
            return first, second
    return left, right


def _in_type(t: Terms, term: Term, dtype: str) -> Term | None:
    """Return a float32 term in a 16-bit type if it was widened from that type or is zero padding; else None."""
    if term.op == "cast" and term.operands[0].dtype == dtype:
        return term.operands[0]
    if term.op == "const" and term.dtype == "f32" and value_of(term) == 0:
        return t.cast(term, dtype)
    if term.op != "where" or term.dtype != "f32":
        return None
    condition, one, other = term.operands
    first, second = _in_type(t, one, dtype), _in_type(t, other, dtype)
    return None if first is None or second is None else t.apply("where", condition, first, second, dtype=dtype)


def _matmul(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    a, b = required(node, 0), required(node, 1)
    first, second = shape_of(a), shape_of(b)
    if min(len(first), len(second)) < 2:
        raise Refused("MatMul of a vector")
    inner = _inner(x, first[-1])
    along, down = x.terms.of(inner[0]), x.terms.of(inner[1])
    left = x.at(a, (*_own(x, index[:-2], first[:-2]), index[-2], along))
    right = x.at(b, (*_own(x, index[:-2], second[:-2]), down, index[-1]))
    return _product(x, node, left, right, inner)


def _own(x: Expander, index: Sequence[Term], shape: Sequence[int]) -> Index:
    """Return an operand's index along batch axes, which are broadcast."""
    own = index[len(index) - len(shape) :]
    return tuple(x.terms.index(0) if extent == 1 else at for at, extent in zip(own, shape, strict=True))


def _gemm(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    a, b, s = required(node, 0), required(node, 1), Scalars(x.terms)
    across, down = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    inner = _inner(x, shape_of(a)[0 if across else 1])
    left, right = (index[0], x.terms.of(inner[0])), (x.terms.of(inner[1]), index[1])
    first = x.at(a, left[::-1] if across else left)
    second = x.at(b, right[::-1] if down else right)
    term = _product(x, node, first, second, inner)
    alpha, beta, bias = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0)), operand(node, 2)
    term = s.mul(term, alpha) if alpha != 1.0 else term
    if bias is None:
        return term
    added = x.terms.cast(x.broadcast(bias, index), "f32")
    return s.add(term, s.mul(added, beta) if beta != 1.0 else added)


def _conv(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    weight, s, t = required(node, 1), Scalars(x.terms), x.terms
    kernel, groups = shape_of(weight)[1:], int(attribute(node, "group", 1))
    group = t.quotient(index[1], shape_of(weight)[0] // groups)
    windows = windows_of(node, kernel[1:])

    def window(at: Index) -> Term:
        place, inside = windows.met(t, index[2:], at[1:])
        term = x.at(required(node, 0), (index[0], t.plus(t.times(group, kernel[0]), at[0]), *place))
        zero = t.cast(t.const(0.0, "f32"), term.dtype)
        return term if inside is None else t.apply("where", inside, term, zero, dtype=term.dtype)

    if shape_of(weight)[0] == groups:
        # one output channel per group: a tile would be one row high, so it is a sum over each window

        def element(at: Index, _: Term) -> Term:
            return s.mul(x.wide(weight, (index[1], *at)), t.cast(window(at), "f32"))

        term = over(x, "sum", kernel, index, element)
    else:
        inner = _inner(x, math.prod(kernel))
        left = x.at(weight, (index[1], *t.unravel(t.of(inner[0]), kernel)))
        term = _product(x, node, left, window(t.unravel(t.of(inner[1]), kernel)), inner)
    bias = operand(node, 2)
    return term if bias is None else s.add(term, x.wide(bias, (index[1],)))


def _conv_transpose(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    """Gather for each output the inputs that a transposed convolution scatters; most kernel taps contribute none."""
    weight, t, s = required(node, 1), x.terms, Scalars(x.terms)
    shape, kernel = shape_of(required(node, 0)), shape_of(weight)
    automatic = str(attribute(node, "auto_pad", "NOTSET"))
    if int(attribute(node, "group", 1)) != 1 or attribute(node, "output_shape") or automatic not in ("NOTSET", "VALID"):
        raise Refused("ConvTranspose in groups, or padded to a shape")
    axes = len(shape) - 2
    steps = attribute(node, "strides") or (1,) * axes
    dilations = attribute(node, "dilations") or (1,) * axes
    pads = (attribute(node, "pads") or (0,) * axes)[:axes] if automatic == "NOTSET" else (0,) * axes
    inner = _inner(x, shape[1] * math.prod(kernel[2:]))
    channel, *at = t.unravel(t.of(inner[1]), (shape[1], *kernel[2:]))
    inside: Term | None = None
    own = []
    for axis, extent in enumerate(shape[2:]):
        place = t.plus(t.plus(index[2 + axis], t.index(pads[axis])), t.times(at[axis], -dilations[axis]))
        source = t.quotient(place, steps[axis])
        here = t.apply("and", t.apply("ge", place, t.index(0), dtype="i1"), _below(t, source, extent))
        if steps[axis] != 1:
            met = t.apply("eq", t.remainder(place, steps[axis]), t.index(0), dtype="i1")
            here = t.apply("and", here, met)
        own.append(t.within(here, source, extent))
        inside = here if inside is None else t.apply("and", inside, here)
    assert inside is not None
    term = x.at(required(node, 0), (index[0], channel, *own))
    right = t.apply("where", inside, term, t.cast(t.const(0.0, "f32"), term.dtype), dtype=term.dtype)
    row, *in_row = t.unravel(t.of(inner[0]), (shape[1], *kernel[2:]))
    term = _product(x, node, x.at(weight, (row, index[1], *in_row)), right, inner)
    bias = operand(node, 2)
    return term if bias is None else s.add(term, x.wide(bias, (index[1],)))


def _below(t: Terms, index: Term, extent: int) -> Term:
    return t.apply("lt", index, t.index(extent), dtype="i1")


PRODUCTS: Mapping[str, Rule] = MappingProxyType(
    {"Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul}
)
