"""Reductions, and operators made of them and of element-wise work: Softmax and the normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.arithmetic import product
from collage_halide.elements import F32, FLOATS, NUMBERS, ElementType
from collage_halide.errors import Refused
from collage_halide.indices import Index
from collage_halide.op import Op
from collage_halide.operators import formulas as f
from collage_halide.operators.operator import Operands, Operator, given, optional
from collage_halide.scope import Body, Scope
from collage_halide.stages import Stage
from collage_halide.values import CHEAP, DEAR, Value

At = tuple[Index, ...]
Expr = Any


def over(
    scope: Scope,
    how: str,
    source: Value,
    axes: Sequence[int],
    kind: ElementType,
    body: Callable[[Expr, At], Expr],
    *,
    work: int = CHEAP,
) -> Value:
    """Reduce a value over some axes; the result has extent 1 there.

    Of a resized value elements are reduced phase by phase, since those of a phase are read side by side. Phases
    longer than a vector are made as long as several: of a last one of fewer elements each would be loaded by itself.

    Args:
        scope: Where.
        how: How; see `Scope.reduced`.
        source: The value.
        axes: The axes, in rising order.
        kind: Type that is reduced in.
        body: What is reduced, from an element in that type and the index of the result.
        work: About how many operations that takes.
    """
    shape = source.shape
    row = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    phases = 1 if row[-1] % source.phases else source.phases
    width, lanes = row[-1] // phases, scope.lanes(F32)
    whole = -(-width // lanes) * lanes if width > lanes else width
    merged = source
    places = list(axes)
    while len(places) > 1 and places[-1] == places[-2] + 1 and merged.merges(places[-2]):
        first = places[-2]
        extents = merged.shape
        merged = merged.reshaped((*extents[:first], extents[first] * extents[first + 1], *extents[first + 2 :]))
        places.pop()

    def element(at: At, own: At) -> Expr:
        if phases > 1:
            at = (*at[:-2], at[-1].clamped(0, width - 1) * phases + at[-2])
        rest = iter(at[axis] for axis in range(len(shape)) if axis not in axes)
        mine = iter(own)
        index = tuple(next(mine) if axis in places else next(rest) for axis in range(len(merged.shape)))
        value = merged.wide(index)
        return body(value if merged.kind.wide == kind else kind.cast(value), at)

    along = all(extent == 1 for extent in row[axes[-1] :])
    reduced = [merged.shape[axis] for axis in places]
    split = row if phases == 1 else (*row[:-1], phases, whole)
    stage = _in_pieces(scope, how, split, reduced, kind, element, along=along, work=work + source.cost)
    if phases == 1:
        return stage
    stage.phased = not stage.gathers  # registers hold the indices and shares of one phase, and nothing is read twice
    return scope.moved(row, stage.kind, lambda at: stage.at((*at[:-1], at[-1] % phases, at[-1] // phases)))


def _in_pieces(
    scope: Scope,
    how: str,
    row: Sequence[int],
    extents: Sequence[int],
    kind: ElementType,
    body: Body,
    *,
    along: bool,
    work: int,
) -> Stage:
    """Reduce; where there are fewer results than threads, in pieces that run in parallel, and these afterwards."""
    axis, pieces = scope.pieces(how, row, extents, work)
    if pieces == 1:
        return scope.reduced(how, row, extents, kind, body, along=along, work=work)
    length = extents[axis] // pieces

    def of_piece(at: At, own: At) -> Expr:
        return body(at[1:], (*own[:axis], at[0] * length + own[axis], *own[axis + 1 :]))

    shorter = [*extents[:axis], length, *extents[axis + 1 :]]
    parts = scope.reduced(how, (pieces, *row), shorter, kind, of_piece, along=along, work=work)
    parts.apart = True
    return scope.reduced(how, row, (pieces,), kind, lambda at, own: parts.at((*own, *at)), along=False)


def _axes(op: Op) -> tuple[int, ...]:
    axes, rank = op.numbers(1, "axes"), len(op.shape(0))
    if not axes:
        return () if op.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in axes))


def _reduced(
    how: str,
    before: Callable[[Expr], Expr] = lambda x: x,
    after: Callable[[Expr, int], Expr] = lambda x, count: x,
    *,
    types: frozenset[str] = FLOATS | {"i32", "i64"},
    work: int = CHEAP,
) -> Operator:
    def define(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
        source, axes = given(operands, 0), _axes(op)
        kind = op.kind(0).wide
        if not axes or not source.shape:
            return [scope.pointwise(op.result(), op.result_kind(), [source], lambda x: after(before(x), 1), work)]
        count = math.prod(source.shape[axis] for axis in axes)
        total = over(scope, how, source, axes, kind, lambda x, at: before(x), work=work)
        whole = scope.pointwise(total.shape, op.result_kind(), [total], lambda x: after(x, count), 2)
        return [whole.reshaped(op.result())]

    return Operator(define=define, types=types, check=_check_axes)


def _check_axes(op: Op) -> None:
    _axes(op)
    if 0 in op.shape(0):
        raise Refused(f"{op.name} of an empty tensor")


def _log_sum_exp(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, axes = given(operands, 0), _axes(op)
    kind = op.kind(0).wide
    if not axes or not source.shape:
        return [scope.pointwise(op.result(), op.result_kind(), [source], lambda x: x, 1)]
    largest = over(scope, "max", source, axes, kind, lambda x, at: x)
    most = scope.kept(scope.pointwise(largest.shape, kind, [largest], f.finite, 2), 1)
    total = over(scope, "sum", source, axes, kind, lambda x, at: f.exp(x - most.at(at)), work=DEAR)
    whole = scope.pointwise(most.shape, op.result_kind(), [total, most], lambda a, b: f.log(a) + b, DEAR)
    return [whole.reshaped(op.result())]


def _argument(sign: str) -> Operator:
    def define(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
        source = given(operands, 0)
        axis = op.axis(len(source.shape), 0)
        how = ("last " if op.attribute("select_last_index", 0) else "") + sign
        place = over(scope, how, source, (axis,), source.kind.wide, lambda x, at: x)
        whole = scope.pointwise(place.shape, op.result_kind(), [place], lambda x: hl.cast(hl.Int(64), x), 1)
        return [whole.reshaped(op.result())]

    return Operator(define=define, types=NUMBERS, check=_check_argument)


def _check_argument(op: Op) -> None:
    if 0 in op.shape(0) or not op.shape(0):
        raise Refused(f"{op.name} of an empty tensor, or of a scalar")


def _softmax(logarithm: bool) -> Operator:
    def define(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
        source = scope.kept(given(operands, 0))
        shape = source.shape
        axis = op.axis(len(shape), -1 if op.version >= 13 else 1)
        kind = op.kind(0).wide
        axes = (axis,) if op.version >= 13 else tuple(range(axis, len(shape)))
        most = over(scope, "max", source, axes, kind, lambda x, at: x)
        if logarithm:
            total = over(scope, "sum", source, axes, kind, lambda x, at: f.exp(x - most.at(at)), work=DEAR)
            size = scope.kept(scope.pointwise(total.shape, kind, [total], f.log, DEAR))
            return [scope.pointwise(shape, op.result_kind(), [source, most, size], lambda x, m, t: (x - m) - t, 2)]
        grown = scope.kept(scope.pointwise(shape, kind, [source, most], lambda x, m: f.exp(x - m), DEAR), 1)
        total = over(scope, "sum", grown, axes, kind, lambda x, at: x)
        inverse = scope.kept(scope.pointwise(total.shape, kind, [total], lambda t: f.like(t, 1.0) / t, 4), 1)
        return [scope.pointwise(shape, op.result_kind(), [grown, inverse], lambda x, by: x * by, 1)]

    return Operator(define=define, check=_check_row)


def _check_row(op: Op) -> None:
    if not op.shape(0) or 0 in op.shape(0):
        raise Refused(f"{op.name} of a scalar, or of an empty tensor")


def standardised(
    scope: Scope,
    source: Value,
    axes: Sequence[int],
    epsilon: float,
    *,
    centred: bool = True,
    of_deviation: bool = False,
) -> tuple[Value, Value, Value | None]:
    """Return elements less the mean of their row, what to multiply that with (one over the deviation), and the mean.

    Two passes over the row, as the reference's; the mean first. Epsilon is added to the variance, or to the deviation.
    """
    kind = source.kind.wide
    count = float(math.prod(source.shape[axis] for axis in axes))

    def mean_of(total: Value) -> Value:
        return scope.pointwise(total.shape, kind, [total], lambda x: x * f.like(x, 1 / count), 1)

    less: Value = source
    mean: Value | None = None
    if centred:
        mean = mean_of(over(scope, "sum", source, axes, kind, lambda x, at: x))
        less = scope.pointwise(source.shape, kind, [source, mean], lambda x, m: x - m, 1)
    squares = over(scope, "sum", less, axes, kind, lambda x, at: x * x, work=2)

    def inverted(x: Expr) -> Expr:
        small = f.like(x, epsilon)
        return f.like(x, 1.0) / (hl.sqrt(x) + small if of_deviation else hl.sqrt(x + small))

    inverse = scope.pointwise(squares.shape, kind, [mean_of(squares)], inverted, 8)
    return less, scope.kept(inverse, 1), mean


def _scaled(scope: Scope, op: Op, less: Value, inverse: Value, scale: Value | None, bias: Value | None) -> Value:
    parts = [less, inverse, *(each for each in (scale, bias) if each is not None)]

    def formula(x: Expr, by: Expr, *rest: Expr) -> Expr:
        y = x * by
        if scale is not None:
            y = y * rest[0]
        return y + rest[-1] if bias is not None else y

    return scope.pointwise(less.shape, op.result_kind(), parts, formula, 3)


def _layer_normalization(scope: Scope, op: Op, operands: Operands) -> Sequence[Value | None]:
    source = scope.kept(given(operands, 0))
    axis = op.axis(len(source.shape), -1)
    axes = range(axis, len(source.shape))
    less, inverse, mean = standardised(scope, source, axes, op.number("epsilon", 1e-5))
    return [_scaled(scope, op, less, inverse, given(operands, 1), optional(operands, 2)), mean, inverse]


def _rms_normalization(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = scope.kept(given(operands, 0))
    axis = op.axis(len(source.shape), -1)
    axes = range(axis, len(source.shape))
    less, inverse, _ = standardised(scope, source, axes, op.number("epsilon", 1e-5), centred=False)
    return [_scaled(scope, op, less, inverse, optional(operands, 1), None)]


def _check_first_only(op: Op) -> None:
    if any(op.uses(place) for place in range(1, len(op.node.outputs))):
        raise Refused(f"{op.name} whose further outputs are read")
    if 0 in op.shape(0):
        raise Refused(f"{op.name} of an empty tensor")


def _instance_normalization(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = scope.kept(given(operands, 0))
    shape = source.shape
    less, inverse, _ = standardised(scope, source, range(2, len(shape)), op.number("epsilon", 1e-5))
    channel = (shape[1], *(1,) * (len(shape) - 2))
    scale, bias = (given(operands, place).reshaped(channel) for place in (1, 2))
    return [_scaled(scope, op, less, inverse, scale, bias)]


def _group_normalization(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = scope.kept(given(operands, 0))
    shape, groups = source.shape, int(op.attribute("num_groups"))
    members = shape[1] // groups
    parts = source.reshaped((shape[0], groups, members, *shape[2:]))
    less, inverse, _ = standardised(scope, parts, range(2, len(parts.shape)), op.number("epsilon", 1e-5))
    per_group = op.shape(1) == (groups,)  # before opset 21
    channel = (groups, 1 if per_group else members, *(1,) * (len(shape) - 2))
    scale, bias = (given(operands, place).reshaped(channel) for place in (1, 2))
    return [_scaled(scope, op, less, inverse, scale, bias).reshaped(shape)]


def _check_group_normalization(op: Op) -> None:
    if 0 in op.shape(0):
        raise Refused("GroupNormalization of an empty tensor")


def _check_spatial(op: Op) -> None:
    if len(op.shape(0)) < 3 or 0 in op.shape(0):
        raise Refused(f"{op.name} without spatial axes, or of an empty tensor")


def _mean_variance(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = scope.kept(given(operands, 0))
    rank = len(source.shape)
    axes = sorted(axis % rank for axis in op.attribute("axes", (0, 2, 3)))
    less, inverse, _ = standardised(scope, source, axes, 1e-9, of_deviation=True)
    return [_scaled(scope, op, less, inverse, None, None)]


def _norm(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = scope.kept(given(operands, 0))
    axis, order = op.axis(len(source.shape), -1), int(op.attribute("p", 2))
    kind = op.kind(0).wide
    body = (lambda x, at: hl.abs(x)) if order == 1 else (lambda x, at: x * x)
    total = over(scope, "sum", source, (axis,), kind, body, work=2)
    size = scope.kept(scope.pointwise(total.shape, kind, [total], lambda x: x if order == 1 else hl.sqrt(x), 4), 1)

    def formula(x: Expr, by: Expr) -> Expr:
        return hl.select(by == f.like(by, 0.0), f.like(by, 0.0), x / by)

    return [scope.pointwise(source.shape, op.result_kind(), [source, size], formula, 4)]


def _global(how: str) -> Operator:
    def define(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
        source = given(operands, 0)
        axes = range(2, len(source.shape))
        count = float(math.prod(source.shape[2:]))
        total = over(scope, how, source, axes, op.kind(0).wide, lambda x, at: x)
        formula = (lambda x: x * f.like(x, 1 / count)) if how == "sum" else (lambda x: x)
        return [scope.pointwise(op.result(), op.result_kind(), [total], formula, 1)]

    return Operator(define=define, check=_check_spatial)


def _local_response(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = scope.kept(given(operands, 0))
    size, channels = int(op.attribute("size")), source.shape[1]
    alpha, beta, bias = op.number("alpha", 1e-4), op.number("beta", 0.75), op.number("bias", 1.0)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2

    def element(index: At) -> Expr:
        total: Expr = None
        for offset in range(-before, after + 1):
            at = index[1] + offset
            value = source.wide((index[0], at.clamped(0, channels - 1), *index[2:]))
            square = value * value
            inside = at.inside(0, channels - 1)
            square = square if inside is None else hl.select(inside, square, f.like(square, 0.0))
            total = square if total is None else total + square
        x = source.wide(index)
        base = total * f.like(total, alpha / size) + f.like(total, bias)
        if beta == 0.75:
            root = hl.sqrt(base)
            return x / (root * hl.sqrt(root))
        return x * f.exp(f.log(base) * f.like(base, -beta))

    return [scope.moved(op.result(), op.result_kind(), element, 2 * size + DEAR)]


REDUCTIONS: Mapping[str, Operator] = MappingProxyType(
    {
        "ArgMax": _argument("argmax"),
        "ArgMin": _argument("argmin"),
        "GlobalAveragePool": _global("sum"),
        "GlobalMaxPool": _global("max"),
        "GroupNormalization": Operator(define=_group_normalization, check=_check_group_normalization),
        "InstanceNormalization": Operator(define=_instance_normalization, check=_check_spatial),
        "LRN": Operator(define=_local_response, check=_check_spatial),
        "LayerNormalization": Operator(define=_layer_normalization, check=_check_row),
        "LogSoftmax": _softmax(logarithm=True),
        "LpNormalization": Operator(define=_norm, check=_check_row),
        "MeanVarianceNormalization": Operator(define=_mean_variance, check=_check_row),
        "RMSNormalization": Operator(define=_rms_normalization, check=_check_first_only),
        "ReduceL1": _reduced("sum", lambda x: hl.cast(x.type(), hl.abs(x))),
        "ReduceL2": _reduced("sum", lambda x: x * x, lambda x, n: hl.sqrt(x), types=FLOATS),
        "ReduceLogSum": _reduced("sum", after=lambda x, n: f.log(x), types=FLOATS),
        "ReduceLogSumExp": Operator(define=_log_sum_exp, check=_check_axes),
        "ReduceMax": _reduced("max", types=NUMBERS),
        "ReduceMean": _reduced("sum", after=lambda x, n: x / f.like(x, float(n)), types=FLOATS),
        "ReduceMin": _reduced("min", types=NUMBERS),
        "ReduceProd": _reduced("prod"),
        "ReduceSum": _reduced("sum"),
        "ReduceSumSquare": _reduced("sum", lambda x: product(x, x)),
        "Softmax": _softmax(logarithm=False),
    }
)
