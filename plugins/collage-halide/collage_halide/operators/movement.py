"""Operators that move elements: each is arithmetic on indices, sometimes with a choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.elements import EVERY
from collage_halide.errors import Refused
from collage_halide.indices import Index, computed, fixed
from collage_halide.op import Op
from collage_halide.operators import formulas as f
from collage_halide.operators.operator import Operands, Operator, given, optional
from collage_halide.scope import Scope
from collage_halide.values import Moved, Number, Value

At = tuple[Index, ...]

_FREE_PARTS = 4
"""Inputs of a Concat up to which choosing among them counts as no operation."""


def _transpose(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = given(operands, 0)
    order = op.attribute("perm") or tuple(reversed(range(len(source.shape))))
    inner = max((axis for axis, extent in enumerate(source.shape) if extent > 1), default=0)
    outer = max((place for place, axis in enumerate(order) if source.shape[axis] > 1), default=0)
    scatters = bool(order) and order[outer] != inner
    if scatters:
        source = scope.kept(source)  # in vectors along its own innermost axis

    def element(index: At) -> Any:
        own = list(index)
        for place, axis in enumerate(order):
            own[axis] = index[place]
        return source.at(own)

    moved = scope.moved(op.result(), op.result_kind(), element, source.cost)
    moved.scattered = scatters or source.scattered
    return [moved]


def _reshape(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    return [given(operands, 0).reshaped(op.result())]


def _expand(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = given(operands, 0)
    return [scope.pointwise(op.result(), source.kind, [source], lambda x: x, 0)]


def _concat(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    axis = op.axis(len(op.result()), 0)
    parts = [each for each in operands if each is not None and each.size]
    kind = op.result_kind()
    starts = [sum(each.shape[axis] for each in parts[:number]) for number in range(len(parts))]

    def element(index: At) -> Any:
        chosen: Any = None
        for part, start in reversed(list(zip(parts, starts, strict=True))):
            own = (index[axis] - start).clamped(0, part.shape[axis] - 1)
            here = part.at((*index[:axis], own, *index[axis + 1 :]))
            end = start + part.shape[axis]
            chosen = here if chosen is None else hl.select(index[axis].expression < end, here, chosen)
        return chosen

    # each element is selected among all inputs; selecting among a few that are in memory costs as much as reading them
    free = len(parts) <= _FREE_PARTS and not any(isinstance(each.unshaped, Moved) for each in parts)
    cost = sum(each.cost for each in parts) + (0 if free else len(parts) - 1)
    return [scope.moved(op.result(), kind, element, cost)]


def _split(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = given(operands, 0)
    axis = op.axis(len(source.shape), 0)
    outputs, start = [], 0
    for place in range(len(op.node.outputs)):
        shape = op.result(place)
        outputs.append(_part(scope, source, shape, {axis: (start, 1)}))
        start += shape[axis]
    return outputs


def _part(scope: Scope, source: Value, shape: Sequence[int], moved: Mapping[int, tuple[int, int]]) -> Value:
    """Return a part of a value, by start and step along some axes."""

    def element(index: At) -> Any:
        own = list(index)
        for axis, (start, step) in moved.items():
            own[axis] = own[axis] * step + start
        return source.at(own)

    return scope.moved(shape, source.kind, element, source.cost)


def _bounds(op: Op) -> dict[int, tuple[int, int]]:
    shape = op.shape(0)
    starts = op.numbers(1, "starts") or ()
    op.numbers(2, "ends")
    axes = op.numbers(3, "axes") or tuple(range(len(starts)))
    steps = op.numbers(4, "steps") or (1,) * len(starts)
    found = {}
    for axis, start, step in zip(axes, starts, steps, strict=True):
        axis %= len(shape)
        extent = shape[axis]
        first = min(max(start + extent if start < 0 else start, 0), extent if step > 0 else extent - 1)
        found[axis] = first, step
    return found


def _slice(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    return [_part(scope, given(operands, 0), op.result(), _bounds(op))]


def _check_slice(op: Op) -> None:
    _bounds(op)


def _position(chosen: Value, index: Sequence[Index], extent: int) -> Index:
    """Return an index that depends on data, counted from the front.

    ONNX does not say what an index out of range reads; it reads the nearest element of the index modulo 2^32.
    """
    expression = chosen.at(index)
    if not chosen.kind.is_unsigned:
        zero, end = chosen.kind.constant(0), chosen.kind.constant(extent)
        expression = hl.select(expression < zero, expression + end, expression)
    loops = frozenset[str]().union(*(each.loops for each in index))
    key = f"{id(chosen)}:{extent}:" + ",".join(each.key for each in index)
    return computed(expression, key, loops, extent)


def _gather(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, chosen = given(operands, 0), given(operands, 1)
    axis, rank = op.axis(len(source.shape), 0), len(chosen.shape)

    def element(index: At) -> Any:
        at = _position(chosen, index[axis : axis + rank], source.shape[axis])
        return source.at((*index[:axis], at, *index[axis + rank :]))

    return [scope.moved(op.result(), source.kind, element, source.cost + chosen.cost)]


def _gather_elements(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, chosen = given(operands, 0), given(operands, 1)
    axis = op.axis(len(source.shape), 0)

    def element(index: At) -> Any:
        at = _position(chosen, index, source.shape[axis])
        return source.at((*index[:axis], at, *index[axis + 1 :]))

    return [scope.moved(op.result(), source.kind, element, source.cost + chosen.cost)]


def _gather_nd(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, chosen = given(operands, 0), given(operands, 1)
    batches, width = int(op.attribute("batch_dims", 0)), chosen.shape[-1]
    rank = len(chosen.shape) - 1

    def element(index: At) -> Any:
        places = [
            _position(chosen, (*index[:rank], fixed(part)), source.shape[batches + part]) for part in range(width)
        ]
        return source.at((*index[:batches], *places, *index[rank:]))

    return [scope.moved(op.result(), source.kind, element, source.cost + chosen.cost)]


def _check_gather(op: Op) -> None:
    if 0 in op.shape(0):
        raise Refused(f"{op.name} from an empty tensor")


def _padding(op: Op) -> list[int]:
    rank = len(op.shape(0))
    pads = op.numbers(1, "pads") or ()
    axes = op.numbers(3, "axes") or tuple(range(rank))
    before = [0] * rank
    for place, axis in enumerate(axes):
        before[axis % rank] = pads[place]
    return before


def _pad(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, kind = given(operands, 0), op.result_kind()
    before, mode = _padding(op), op.attribute("mode", "constant")
    filling = optional(operands, 2)
    other = Number(op.number("value", 0.0), kind, ()) if filling is None else filling.reshaped(())

    def element(index: At) -> Any:
        if not source.size:
            return other.at(())
        inner = [at - pad for at, pad in zip(index, before, strict=True)]
        own = [_mirrored(at, extent, mode) for at, extent in zip(inner, source.shape, strict=True)]
        if mode != "constant":
            return source.at(own)
        within = [at.inside(0, extent - 1) for at, extent in zip(inner, source.shape, strict=True)]
        return f.where(within, source.at(own), other.at(()))

    return [scope.moved(op.result(), kind, element, source.cost + 1)]


def _mirrored(at: Index, extent: int, mode: str) -> Index:
    """Return where padding takes its element from."""
    if mode in ("constant", "edge") or (at.low >= 0 and at.high < extent):
        return at.clamped(0, extent - 1)
    if mode == "wrap":
        return at % extent
    period = max(1, 2 * (extent - 1))
    back = at % period
    expression = hl.select(back.expression < extent, back.expression, period - back.expression)
    return Index(hl.clamp(expression, 0, extent - 1), f"mirror({at.key},{extent})", at.loops, "", 0, extent - 1)


def _check_pad(op: Op) -> None:
    _padding(op)
    if op.attribute("mode", "constant") != "constant" and 0 in op.shape(0):
        raise Refused("Pad of an empty tensor")


def _tile(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = given(operands, 0)

    def element(index: At) -> Any:
        return source.at(tuple(at % extent for at, extent in zip(index, source.shape, strict=True)))

    return [scope.moved(op.result(), source.kind, element, source.cost)]


def _depth_to_space(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    """Read channels as (c, r, s) in mode CRD, (r, s, c) in mode DCR, for row and column inside a block."""
    source, size = given(operands, 0), int(op.attribute("blocksize"))
    channels, by_column = op.result()[1], op.attribute("mode", "DCR") == "CRD"

    def element(index: At) -> Any:
        b, c, h, w = index
        r, s = h % size, w % size
        channel = (c * size + r) * size + s if by_column else (r * size + s) * channels + c
        return source.at((b, channel, h // size, w // size))

    return [scope.moved(op.result(), source.kind, element, source.cost)]


def _space_to_depth(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, size = given(operands, 0), int(op.attribute("blocksize"))
    channels, by_column = source.shape[1], op.attribute("mode", "DCR") == "CRD"

    def element(index: At) -> Any:
        b, c, h, w = index
        block, channel = (c % (size * size), c // (size * size)) if by_column else (c // channels, c % channels)
        return source.at((b, channel, h * size + block // size, w * size + block % size))

    return [scope.moved(op.result(), source.kind, element, source.cost)]


def _trilu(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, kind = given(operands, 0), op.result_kind()
    rows, columns = op.shape(0)[-2:]
    [given_by] = op.numbers(1, "k") or (0,)
    by = min(max(given_by, -rows), columns)  # beyond the corners all diagonals are alike
    upper = bool(op.attribute("upper", 1))

    def element(index: At) -> Any:
        row, column = (index[-2] + by).expression, index[-1].expression
        return hl.select(column >= row if upper else column <= row, source.at(index), kind.constant(0))

    return [scope.moved(op.result(), kind, element, source.cost + 1)]


def _check_trilu(op: Op) -> None:
    op.numbers(1, "k")


def _one_hot(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    chosen, pair = given(operands, 0), given(operands, 2)
    axis = op.axis(len(op.result()), -1)
    depth = op.result()[axis]

    def element(index: At) -> Any:
        held = chosen.at((*index[:axis], *index[axis + 1 :]))
        number = hl.cast(hl.Int(64), held)
        number = hl.select(number < hl.i64(0), number + hl.i64(depth), number)
        is_it = number == hl.cast(hl.Int(64), index[axis].expression)
        return hl.select(is_it, pair.at((fixed(1),)), pair.at((fixed(0),)))

    return [scope.moved(op.result(), op.result_kind(), element, chosen.cost + 2)]


def _check_blocks(op: Op) -> None:
    if math.prod(op.result()) == 0:
        raise Refused(f"{op.name} of an empty tensor")


_VIEW = Operator(define=_reshape, types=EVERY)

MOVEMENT: Mapping[str, Operator] = MappingProxyType(
    {
        "Concat": Operator(define=_concat, types=EVERY),
        "DepthToSpace": Operator(define=_depth_to_space, types=EVERY, check=_check_blocks),
        "Expand": Operator(define=_expand, types=EVERY),
        "Flatten": _VIEW,
        "Gather": Operator(define=_gather, types=EVERY, check=_check_gather),
        "GatherElements": Operator(define=_gather_elements, types=EVERY, check=_check_gather),
        "GatherND": Operator(define=_gather_nd, types=EVERY, check=_check_gather),
        "OneHot": Operator(define=_one_hot, types=EVERY, data=2),
        "Pad": Operator(define=_pad, types=EVERY, check=_check_pad),
        "Reshape": _VIEW,
        "Slice": Operator(define=_slice, types=EVERY, check=_check_slice),
        "SpaceToDepth": Operator(define=_space_to_depth, types=EVERY, check=_check_blocks),
        "Split": Operator(define=_split, types=EVERY),
        "Squeeze": _VIEW,
        "Tile": Operator(define=_tile, types=EVERY),
        "Transpose": Operator(define=_transpose, types=EVERY),
        "Trilu": Operator(define=_trilu, types=EVERY, check=_check_trilu),
        "Unsqueeze": _VIEW,
    }
)
