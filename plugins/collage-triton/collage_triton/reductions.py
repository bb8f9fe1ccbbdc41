"""Operators over rows: reductions such as sums, and combinations of reductions and element-wise work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import onnx_ir

from collage_triton.elements import FLOATS
from collage_triton.errors import Refused
from collage_triton.expand import (
    LARGEST,
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
from collage_triton.scalars import Scalars
from collage_triton.terms import Term, Var


def over(
    x: Expander,
    kind: str,
    extents: Sequence[int],
    rows: Sequence[Term],
    body: Callable[[Index, Term], Term],
) -> Term:
    """Reduce a body over axes of these extents.

    Args:
        x: The expander.
        kind: `"sum"`, `"prod"`, `"max"` or `"min"`.
        extents: Extents of the reduced axes.
        rows: The index of the row.
        body: Returns an element for the index along those axes, given as a tuple and as one flat index.

    Raises:
        Refused: If the row depends on another reduction's loop variable.
    """
    size = math.prod(extents)
    free = frozenset[Var]().union(*(each.free for each in rows))
    if any(var.axis == 1 for var in free):
        raise Refused("a reduction inside another one over other rows; one kernel has one loop inside its rows")
    x.rows |= free
    var = x.terms.var("r", 1, size)
    flat = x.terms.of(var)
    if size == 0:
        raise Refused("a reduction of no elements")
    term = x.terms.reduce(kind, body(x.terms.unravel(flat, extents), flat), var)
    x.reduced_rows[term] = math.prod(each.below or LARGEST for each in rows)
    return term


def _axes(node: onnx_ir.Node, rank: int) -> tuple[int, ...]:
    axes = numbers(node, 1, "axes")
    if not axes:
        return () if attribute(node, "noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in axes))


def _placed(index: Index, axes: Sequence[int], own: Index) -> Index:
    """Return an index with the reduced axes inserted; `index` has one entry for each axis of the input."""
    places = dict(zip(axes, own, strict=True))
    return tuple(places.get(axis, at) for axis, at in enumerate(index))


def _kept(x: Expander, node: onnx_ir.Node, index: Index, axes: Sequence[int], rank: int) -> Index:
    """Return an output's index with one entry for each axis of the input, 0 where it is reduced."""
    zero = x.terms.index(0)
    if attribute(node, "keepdims", 1):
        return tuple(zero if axis in axes else at for axis, at in enumerate(index))
    rest = iter(index)
    return tuple(zero if axis in axes else next(rest) for axis in range(rank))


def _reduced(
    kind: str,
    before: Callable[[Scalars, Term], Term] = lambda s, a: a,
    after: Callable[[Scalars, Term, int], Term] = lambda s, a, n: a,
) -> Rule:
    def rule(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
        source = required(node, 0)
        shape = shape_of(source)
        axes = _axes(node, len(shape))
        row = _kept(x, node, index, axes, len(shape))
        extents = [shape[axis] for axis in axes]
        s = Scalars(x.terms)
        term = extreme(x, s, kind, extents, row, lambda own, _: before(s, x.wide(source, _placed(row, axes, own))))
        return after(s, term, math.prod(extents))

    return rule


def extreme(
    x: Expander, s: Scalars, kind: str, extents: Sequence[int], row: Index, body: Callable[[Index, Term], Term]
) -> Term:
    """Reduce like `over`; for floats, a maximum or minimum is NaN if any element is NaN.

    Args:
        x: As for `over`, like all parameters but `s`.
        s: Creates terms.
        kind: As for `over`.
        extents: As for `over`.
        row: As for `over`.
        body: As for `over`.
    """
    term = over(x, kind, extents, row, body)
    if kind in ("sum", "prod") or term.dtype != "f32":
        return term
    strange = over(x, "max", extents, row, lambda own, flat: x.terms.cast(s.is_nan(body(own, flat)), "i32"))
    return s.where(s.more(strange, 0), math.nan, term)


def _of_floats(rule: Rule) -> Rule:
    def guarded(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
        if dtype_of(required(node, 0)) not in FLOATS:
            raise Refused(f"{node.op_type} of {dtype_of(required(node, 0))}; it is a function of floats here")
        return rule(x, node, value, index)

    return guarded


def _log_sum_exp(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source = required(node, 0)
    shape = shape_of(source)
    axes = _axes(node, len(shape))
    row = _kept(x, node, index, axes, len(shape))
    s = Scalars(x.terms)
    extents = [shape[axis] for axis in axes]

    def element(own: Index) -> Term:
        return x.wide(source, _placed(row, axes, own))

    most = over(x, "max", extents, row, lambda own, _: element(own))
    total = over(x, "sum", extents, row, lambda own, _: s.call("exp", s.sub(element(own), most)))
    return s.add(s.call("log", total), most)


def _arg(kind: str) -> Rule:
    def rule(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
        """Return the first or last position of the row's maximum or minimum; NaN elements take precedence."""
        source = required(node, 0)
        shape = shape_of(source)
        axis = axis_of(node, len(shape), 0)
        row = _kept(x, node, index, (axis,), len(shape))
        s = Scalars(x.terms)
        extent = shape[axis]

        def element(own: Index) -> Term:
            return x.wide(source, _placed(row, (axis,), own))

        best = extreme(x, s, kind, [extent], row, lambda own, _: element(own))
        last = bool(attribute(node, "select_last_index", 0))

        def place(own: Index, flat: Term) -> Term:
            hit = s.equal(element(own), best)
            if best.dtype == "f32":
                hit = x.terms.apply("or", hit, s.is_nan(element(own)))
            return s.where(hit, flat, x.terms.index(-1 if last else extent))

        return x.terms.cast(over(x, "max" if last else "min", [extent], row, place), "i64")

    return rule


def _softmax(*, logarithm: bool) -> Rule:
    def rule(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
        source = required(node, 0)
        shape = shape_of(source)
        if (node.version or 13) < 13:
            raise Refused(f"{node.op_type} of opset {node.version}, whose rows are several axes")
        axis = axis_of(node, len(shape), -1)
        row = _placed(index, (axis,), (x.terms.index(0),))
        s = Scalars(x.terms)

        def element(own: Index) -> Term:
            return x.wide(source, _placed(row, (axis,), own))

        most = over(x, "max", [shape[axis]], row, lambda own, _: element(own))
        total = over(x, "sum", [shape[axis]], row, lambda own, _: s.call("exp", s.sub(element(own), most)))
        shifted = s.sub(element((index[axis],)), most)
        return s.sub(shifted, s.call("log", total)) if logarithm else s.div(s.call("exp", shifted), total)

    return rule


def _standardised(
    x: Expander,
    s: Scalars,
    extents: Sequence[int],
    row: Sequence[Term],
    element: Callable[[Index], Term],
    own: Index,
    epsilon: float,
) -> Term:
    """Return an element minus its row's mean, over the row's standard deviation; in two passes, as the reference."""
    size = float(math.prod(extents))
    mean = s.div(over(x, "sum", extents, row, lambda at, _: element(at)), size)

    def square(at: Index, _: Term) -> Term:
        apart = s.sub(element(at), mean)
        return s.mul(apart, apart)

    variance = s.div(over(x, "sum", extents, row, square), size)
    return s.div(s.sub(element(own), mean), s.call("sqrt", s.add(variance, epsilon)))


def _scaled(x: Expander, s: Scalars, node: onnx_ir.Node, term: Term, index: Index) -> Term:
    """Multiply by the scale and add the bias, both broadcast."""
    term = s.mul(term, x.terms.cast(x.broadcast(required(node, 1), index), "f32"))
    bias = operand(node, 2)
    return term if bias is None else s.add(term, x.terms.cast(x.broadcast(bias, index), "f32"))


def _layer_normalization(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if value is not node.outputs[0]:
        raise Refused("LayerNormalization's mean and deviation as outputs")
    source = required(node, 0)
    shape = shape_of(source)
    axis = axis_of(node, len(shape), -1)
    s = Scalars(x.terms)
    rows = index[:axis]

    def element(own: Index) -> Term:
        return x.wide(source, (*rows, *own))

    epsilon = float(attribute(node, "epsilon", 1e-5))
    term = _standardised(x, s, shape[axis:], rows, element, index[axis:], epsilon)
    if int(attribute(node, "stash_type", 1)) == 1:
        term = x.terms.cast(x.terms.cast(term, dtype_of(value)), "f32")  # the standard rounds before the scale
    return _scaled(x, s, node, term, index)


def _rms_normalization(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source = required(node, 0)
    shape = shape_of(source)
    axis = axis_of(node, len(shape), -1)
    s = Scalars(x.terms)
    rows = index[:axis]

    def square(own: Index, _: Term) -> Term:
        term = x.wide(source, (*rows, *own))
        return s.mul(term, term)

    mean = s.div(over(x, "sum", shape[axis:], rows, square), float(math.prod(shape[axis:])))
    deviation = s.call("sqrt", s.add(mean, float(attribute(node, "epsilon", 1e-5))))
    return _scaled(x, s, node, s.div(x.wide(source, index), deviation), index)


def _instance_normalization(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source = required(node, 0)
    s = Scalars(x.terms)
    rows = index[:2]

    def element(own: Index) -> Term:
        return x.wide(source, (*rows, *own))

    epsilon = float(attribute(node, "epsilon", 1e-5))
    term = _standardised(x, s, shape_of(source)[2:], rows, element, index[2:], epsilon)
    scale, bias = (x.wide(required(node, place), (index[1],)) for place in (1, 2))
    return s.add(s.mul(term, scale), bias)


def _group_normalization(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if (node.version or 21) < 21:
        raise Refused("GroupNormalization of opset 18, whose scale is one number per group")
    source = required(node, 0)
    shape = shape_of(source)
    t, s = x.terms, Scalars(x.terms)
    members = shape[1] // int(attribute(node, "num_groups"))
    group, member = t.quotient(index[1], members), t.remainder(index[1], members)

    def element(own: Index) -> Term:
        return x.wide(source, (index[0], t.plus(t.times(group, members), own[0]), *own[1:]))

    epsilon = float(attribute(node, "epsilon", 1e-5))
    extents = (members, *shape[2:])
    term = _standardised(x, s, extents, (index[0], group), element, (member, *index[2:]), epsilon)
    scale, bias = (x.wide(required(node, place), (index[1],)) for place in (1, 2))
    return s.add(s.mul(term, scale), bias)


def _global(kind: str) -> Rule:
    def rule(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
        source = required(node, 0)
        extents = shape_of(source)[2:]
        s = Scalars(x.terms)
        term = extreme(x, s, kind, extents, index[:2], lambda own, _: x.wide(source, (*index[:2], *own)))
        return s.div(term, float(math.prod(extents))) if kind == "sum" else term

    return rule


def _square(s: Scalars, a: Term) -> Term:
    return s.mul(a, a)


REDUCTIONS: Mapping[str, Rule] = MappingProxyType(
    {
        "ArgMax": _arg("max"),
        "ArgMin": _arg("min"),
        "GlobalAveragePool": _of_floats(_global("sum")),
        "GlobalMaxPool": _of_floats(_global("max")),
        "GroupNormalization": _of_floats(_group_normalization),
        "InstanceNormalization": _of_floats(_instance_normalization),
        "LayerNormalization": _of_floats(_layer_normalization),
        "LogSoftmax": _of_floats(_softmax(logarithm=True)),
        "RMSNormalization": _of_floats(_rms_normalization),
        "ReduceL1": _reduced("sum", lambda s, a: s.call("abs", a)),
        "ReduceL2": _of_floats(_reduced("sum", _square, lambda s, a, n: s.call("sqrt", a))),
        "ReduceLogSum": _of_floats(_reduced("sum", after=lambda s, a, n: s.call("log", a))),
        "ReduceLogSumExp": _of_floats(_log_sum_exp),
        "ReduceMax": _reduced("max"),
        "ReduceMean": _of_floats(_reduced("sum", after=lambda s, a, n: s.div(a, float(n)))),
        "ReduceMin": _reduced("min"),
        "ReduceProd": _reduced("prod"),
        "ReduceSum": _reduced("sum"),
        "ReduceSumSquare": _reduced("sum", _square),
        "Softmax": _of_floats(_softmax(logarithm=False)),
    }
)
