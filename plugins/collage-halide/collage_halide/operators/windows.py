"""Operators over windows of an image: pooling, and convolutions of few elements."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_core.ir.operators import windows as geometry
from collage_halide import hl
from collage_halide.elements import FLOATS
from collage_halide.errors import Refused
from collage_halide.indices import Index, fixed
from collage_halide.op import Op
from collage_halide.operators import formulas as f
from collage_halide.operators.operator import Operands, Operator, given, optional
from collage_halide.scope import Scope
from collage_halide.stages import Stage, Window
from collage_halide.values import CHEAP, DEAR, Value

At = tuple[Index, ...]

MOST_UNROLLED = 128
"""Elements that a pooling's window may have: they are written out."""
MOST_MULTIPLIED = 64
"""Products that an element of a convolution may take; libraries are faster with more."""

_FEW, _WIDE = 9, 48
"""Elements of a small window, windows in a long row."""
_DEARER = 4 * CHEAP
"""Cost from which what several products read is worth memory."""


class Windows(geometry.Windows):
    """Windows whose elements are read by indices."""

    @property
    def places(self) -> Sequence[tuple[int, ...]]:
        """All places in a window."""
        return list(itertools.product(*map(range, self.kernel)))

    def at(self, windows: At, place: Sequence[Index] | Sequence[int]) -> At:
        """Return the input's index for a place in a window; windows have no padding."""
        return tuple(
            windows[axis] * self.steps[axis] + place[axis] * self.dilations[axis] for axis in range(len(self.shape))
        )

    def along(self, axis: int, variable: Any = None) -> Window:
        """Return the windows along one axis, with a reduced variable over them."""
        return Window(variable, self.kernel[axis], self.steps[axis], self.dilations[axis])

    def met(self, axis: int, window: Index) -> Any:
        """Return how many elements of a window are in the input, along one axis."""
        count = hl.i32(0)
        for place in range(self.kernel[axis]):
            at = window * self.steps[axis] + place * self.dilations[axis] - self.before[axis]
            inside = at.inside(0, self.shape[axis] - 1)
            count = count + (hl.i32(1) if inside is None else hl.select(inside, hl.i32(1), hl.i32(0)))
        return count


def _windows(op: Op, kernel: Sequence[int]) -> Windows:
    return Windows.of(op.node, op.shape(0)[2:], op.result()[2:], kernel)


def padded(
    scope: Scope, source: Value, windows: Windows, filling: float, *, once: bool = True
) -> tuple[Value, Windows]:
    """Return what windows read, and the windows over it: where they meet padding, it is written out first.

    Written out, every window reads its elements side by side; else vectors near the edges would gather them. Where rows
    are long few vectors are near an edge, and with small windows it is not worth it.

    Args:
        scope: Where they are read.
        source: What is read.
        windows: The windows.
        filling: What padding is.
        once: Whether what is loaded is for one result alone, not for several that registers hold.
    """
    axes = range(len(windows.shape))
    beyond = tuple(max(0, windows.beyond(axis)) for axis in axes)
    if not any(windows.before) and not any(beyond):
        single = len(windows.places) == 1  # then read once for all results that registers hold
        return scope.kept(source, _DEARER if single and not once else CHEAP), windows
    shape = tuple(windows.before[axis] + windows.shape[axis] + beyond[axis] for axis in axes)
    kind = source.kind.wide

    def element(index: At) -> Any:
        own, within = list(index[:2]), []
        for axis, at in enumerate(index[2:]):
            at = at - windows.before[axis]
            own.append(at.clamped(0, windows.shape[axis] - 1))
            within.append(at.inside(0, windows.shape[axis] - 1))
        value = source.wide(own)
        return f.where(within, value, kind.constant(filling))

    wide = scope.kept(scope.moved((*source.shape[:2], *shape), kind, element, source.cost + 2), CHEAP)
    if isinstance(wide, Stage):
        wide.seldom_kept = once and len(windows.places) <= _FEW and source.cost < DEAR and windows.result[-1] >= _WIDE
    return wide, dataclasses.replace(windows, shape=shape, before=(0,) * len(shape), after=(0,) * len(shape))


def _max_pool(scope: Scope, op: Op, operands: Operands) -> Sequence[Value | None]:
    kind = op.kind(0).wide
    source, windows = padded(scope, given(operands, 0), _windows(op, op.attribute("kernel_shape")), kind.least)

    def element(index: At) -> Any:
        values = [source.wide((*index[:2], *windows.at(index[2:], place))) for place in windows.places]
        most = functools.reduce(hl.max, values)
        if not kind.is_float:
            return most
        # each value once: Halide's passes walk an expression as a tree, and a maximum with NaN names its operands twice
        strange = functools.reduce(lambda a, b: a | b, map(hl.is_nan, values))
        return hl.select(strange, kind.constant(math.nan), most)

    return [scope.moved(op.result(), op.result_kind(), element, len(windows.places) * (source.cost + 1)), None]


def _check_max_pool(op: Op) -> None:
    if op.uses(1):
        raise Refused("MaxPool's places as an output")
    _check_window(op, op.attribute("kernel_shape"))


def _check_window(op: Op, kernel: Sequence[int]) -> None:
    if 0 in op.shape(0) or len(op.shape(0)) < 3:
        raise Refused(f"{op.name} without spatial axes, or of an empty tensor")
    if math.prod(kernel) > MOST_UNROLLED:
        raise Refused(f"{op.name} with windows of {math.prod(kernel)} elements")


def _average_pool(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    kind, bare = op.kind(0).wide, _windows(op, op.attribute("kernel_shape"))
    source, windows = padded(scope, given(operands, 0), bare, 0)
    every = len(windows.places)

    def element(index: At) -> Any:
        values = [source.wide((*index[:2], *windows.at(index[2:], place))) for place in windows.places]
        total = functools.reduce(lambda a, b: a + b, values)
        if windows is bare or op.attribute("count_include_pad", 0):
            return total * f.like(total, 1 / every)
        count = functools.reduce(lambda a, b: a * b, (bare.met(axis, at) for axis, at in enumerate(index[2:])))
        return total / kind.cast(count)

    return [scope.moved(op.result(), op.result_kind(), element, every * (source.cost + 1) + 4)]


def _check_average_pool(op: Op) -> None:
    kernel = op.attribute("kernel_shape")
    _check_window(op, kernel)
    windows = _windows(op, kernel)
    spare = 0 if op.attribute("count_include_pad", 0) else 1  # ONNX's reference moves windows that end further behind
    if any(windows.beyond(axis) > after + spare for axis, after in enumerate(windows.after)):
        raise Refused("AveragePool with windows that end behind the padding; where they begin is in dispute")


def _conv(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    weight, bias, kind = given(operands, 1), optional(operands, 2), op.result_kind()
    members, shape = op.shape(1)[1], op.result()
    windows = _windows(op, op.shape(1)[2:])
    shared = members > 1 or (len(windows.shape) > 1 and shape[-2] > 1 and windows.along(-2).overlaps)
    source, windows = padded(scope, given(operands, 0), windows, 0, once=not shared)
    per_group = op.shape(1)[0] // int(op.attribute("group", 1))
    taps = len(windows.places) * members

    def product(index: At, at: At) -> Any:
        """Return a product, by the place of its weight."""
        scope.fuse()
        channel = index[1] // per_group * members + at[0]
        element = source.wide((index[0], channel, *windows.at(index[2:], at[1:])))
        return hl.strict_float(element) * weight.wide((index[1], *at))

    def of_channel(index: At) -> Any:
        products = (product(index, (fixed(0), *map(fixed, place))) for place in windows.places)
        return functools.reduce(lambda a, b: a + b, products)

    if not shared:  # sums in registers side by side would have nothing in common
        total: Value = scope.moved(shape, kind.wide, of_channel, 2 * taps + taps * source.cost)
    else:
        extents = (members, *windows.kernel)
        stage = scope.reduced("sum", shape, extents, kind.wide, product, along=False, work=2 + source.cost)
        variables = dict(
            zip([axis for axis, extent in enumerate(extents) if extent > 1], stage.reduction or (), strict=True)
        )
        stage.windows = {axis + 1: windows.along(axis - 1, variable) for axis, variable in variables.items() if axis}
        stage.repeats, total = taps, stage
    parts = [total]
    if bias is not None:
        parts.append(bias.reshaped((shape[1], *(1,) * len(windows.shape))))
    return [scope.pointwise(shape, kind, parts, lambda x, *b: x + b[0] if b else x, 1)]


def _check_conv(op: Op) -> None:
    if len(op.shape(0)) < 3 or 0 in op.shape(0) or 0 in op.shape(1):
        raise Refused("Conv without spatial axes, or of an empty tensor")
    products = math.prod(op.shape(1)[1:])
    if products > MOST_MULTIPLIED:
        raise Refused(f"Conv of {products} products for an element; libraries are faster")


WINDOWS: Mapping[str, Operator] = MappingProxyType(
    {
        "AveragePool": Operator(define=_average_pool, check=_check_average_pool),
        "Conv": Operator(define=_conv, types=FLOATS, check=_check_conv),
        "MaxPool": Operator(define=_max_pool, types=FLOATS | {"i8", "u8"}, check=_check_max_pool),
    }
)
