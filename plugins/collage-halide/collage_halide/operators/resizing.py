"""Resize: each axis by a table of taps, which element of the input and how much of it.

Coordinates, modes and their order of rounding are those of ONNX's text of `Resize` (opset 19).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from collage_halide import hl
from collage_halide.elements import F32, FLOATS, INTEGERS, ElementType
from collage_halide.errors import Refused
from collage_halide.indices import Index, computed
from collage_halide.op import Op
from collage_halide.operators.operator import Operands, Operator, given
from collage_halide.scope import Scope
from collage_halide.values import Value

MOST_TAPS = 16
_SMALL_FACTOR = 8
"""Up to this factor weights are chosen by the place in a period, from numbers."""


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """How one axis is resized.

    Attributes:
        axis: The axis.
        places: Element of the input for each element of the result and each tap, int32[result, taps].
        shares: What it is multiplied with, float32 of the same shape.
        outside: Elements of the result that lie outside of the input and get a given number, bool[result].
    """

    axis: int
    places: np.ndarray[Any, Any]
    shares: np.ndarray[Any, Any]
    outside: np.ndarray[Any, Any]

    @property
    def taps(self) -> int:
        """Number of taps."""
        return int(self.places.shape[1])


def axes_of(op: Op) -> list[Axis]:
    """Return how each axis is resized that is not left as it is.

    Raises:
        Refused: If scales or sizes are computed, or more elements are mixed than is worth a kernel.
    """
    shape, result = op.shape(0), op.result()
    chosen = [axis % len(shape) for axis in op.attribute("axes") or range(len(shape))]
    scales, sizes, roi = (op.constant(place) for place in (2, 3, 1))
    mode = op.attribute("coordinate_transformation_mode", "half_pixel")
    if scales is not None and scales.size:
        factors = [float(np.float32(each)) for each in scales.reshape(-1)]
    elif sizes is not None and sizes.size:
        factors = _factors(op, [int(each) / shape[axis] for each, axis in zip(sizes.reshape(-1), chosen, strict=True)])
    else:
        raise Refused("Resize without scales and sizes")
    found = []
    for place, (axis, scale) in enumerate(zip(chosen, factors, strict=True)):
        ends = (0.0, 1.0)
        if mode == "tf_crop_and_resize" and roi is not None and roi.size:
            ends = (float(roi.reshape(-1)[place]), float(roi.reshape(-1)[place + len(chosen)]))
        if scale == 1.0 and result[axis] == shape[axis] and mode != "tf_crop_and_resize":
            continue
        found.append(_axis(op, axis, shape[axis], result[axis], scale, mode, ends))
    return found


def _factors(op: Op, wanted: list[float]) -> list[float]:
    """Return by what axes are scaled that are to have given sizes: all by one number, if these are limits."""
    policy = op.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted
    return [min(wanted) if policy == "not_larger" else max(wanted)] * len(wanted)


def _axis(op: Op, axis: int, extent: int, result: int, scale: float, mode: str, ends: tuple[float, float]) -> Axis:
    how = op.attribute("mode", "nearest")
    # the nearest element is that nearest to a place in float32, as other libraries have it, and core's reference
    kind = np.float32 if how == "nearest" else np.float64
    coordinates = _coordinates(np.arange(result, dtype=kind), extent, result, scale, mode, ends)
    outside = np.zeros(result, bool)
    if mode == "tf_crop_and_resize":
        outside = (coordinates < 0) | (coordinates > extent - 1)
    if how == "nearest":
        places = _nearest(coordinates, op.attribute("nearest_mode", "round_prefer_floor"))[:, None]
        shares = np.ones_like(places, np.float64)
    else:
        wide = min(scale, 1.0) if op.attribute("antialias", 0) else 1.0
        reach = (1.0 if how == "linear" else 2.0) / wide
        first = math.floor(-reach) + 1
        taps = 2 * (1 - first)
        if taps > MOST_TAPS:
            raise Refused(f"Resize that mixes {taps} elements of an axis")
        whole = np.floor(coordinates)
        offsets = np.arange(first, first + taps)
        distance = np.abs(offsets[None, :] - (coordinates - whole)[:, None]) * wide
        weights = (
            np.clip(1 - distance, 0, 1) if how == "linear" else _cubic(distance, op.number("cubic_coeff_a", -0.75))
        )
        places = whole[:, None].astype(np.int64) + offsets[None, :]
        if op.attribute("exclude_outside", 0):
            weights = np.where((places < 0) | (places >= extent), 0.0, weights)
        if wide < 1.0 or op.attribute("exclude_outside", 0):
            weights = weights / weights.sum(axis=1, keepdims=True)
        shares = weights
    places = np.clip(places, 0, extent - 1).astype(np.int32)
    used = np.any(shares != 0, axis=0)
    return Axis(axis, places[:, used], shares[:, used].astype(np.float32), outside)


def _coordinates(
    x: np.ndarray[Any, Any], extent: int, result: int, scale: float, mode: str, ends: tuple[float, float]
) -> np.ndarray[Any, Any]:
    """Return where in the input the elements of the result lie."""
    exact = scale * extent
    if mode == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if result > 1 else x * 0.0
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return x * (extent - 1) / (exact - 1) if result > 1 else x * 0.0
    if mode == "half_pixel_symmetric":
        middle = extent / 2
        return middle * (1 - result / exact) + (x + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize":
        start, end = ends
        if result > 1:
            return start * (extent - 1) + x * (end - start) * (extent - 1) / (result - 1)
        return x * 0.0 + 0.5 * (start + end) * (extent - 1)
    raise Refused(f"Resize with coordinates {mode}")


def _nearest(coordinates: np.ndarray[Any, Any], mode: str) -> np.ndarray[Any, Any]:
    rounding: Mapping[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounding:
        raise Refused(f"Resize with rounding {mode}")
    return rounding[mode](coordinates).astype(np.int64)


def _cubic(distance: np.ndarray[Any, Any], a: float) -> np.ndarray[Any, Any]:
    """Return the weights of Keys' cubic convolution, "Cubic convolution interpolation" (1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _resize(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    value, kind = given(operands, 0), op.result_kind()
    axes = axes_of(op)
    if math.prod(op.result()) > value.size or any(each.taps > 1 for each in axes):
        value = scope.kept(value)  # each element is read several times
    mixes = [each for each in axes if each.taps > 1]
    for each in axes:
        last = each is axes[-1]
        value = _resized(scope, value, kind if last or not kind.is_float else kind.wide, each, op)
        if each in mixes and each is not mixes[-1]:
            value = scope.kept(value, 1)
    return [value if value.kind is kind else scope.pointwise(value.shape, kind, [value], lambda x: x, 0)]


def _resized(scope: Scope, source: Value, kind: ElementType, how: Axis, op: Op) -> Value:
    shape = (*source.shape[: how.axis], len(how.places), *source.shape[how.axis + 1 :])
    extent = source.shape[how.axis]
    filling = op.number("extrapolation_value", 0.0)

    def element(index: tuple[Index, ...]) -> Any:
        at = index[how.axis]
        total: Any = None
        for tap in range(how.taps):
            place = _place(at, how.places[:, tap], extent)
            value = source.wide((*index[: how.axis], place, *index[how.axis + 1 :]))
            if how.taps > 1:
                value = F32.cast(value) * _share(at, how.shares[:, tap])
            total = value if total is None else total + value
        if how.outside.any():
            is_outside = _table(how.outside.astype(np.uint8))[at.expression] != hl.u8(0)
            total = hl.select(is_outside, hl.cast(total.type(), hl.f32(filling)), total)
        return total

    phases = _factor(how, extent) if how.axis == len(shape) - 1 else source.phases
    return scope.moved(shape, kind, element, how.taps * (source.cost + 2), phases=phases)


def _factor(how: Axis, extent: int) -> int:
    """Return a small factor by which an axis is enlarged; 1 if it is not."""
    factor, rest = divmod(len(how.places), extent)
    return factor if not rest and factor <= _SMALL_FACTOR else 1


def _place(at: Index, places: np.ndarray[Any, Any], extent: int) -> Index:
    """Return a tap's place: by arithmetic where that gives the table, else from the table."""
    count = len(places)
    numbers = np.arange(count)
    for factor in range(1, _SMALL_FACTOR + 1):
        for offset in range(-2 * factor, 2 * factor + 1):
            if np.array_equal(np.clip((numbers + offset) // factor, 0, extent - 1), places):
                return ((at + offset) // factor).clamped(0, extent - 1)
            if factor > 1 and np.array_equal(np.clip(numbers * factor + offset, 0, extent - 1), places):
                return (at * factor + offset).clamped(0, extent - 1)
    return computed(_table(places)[at.expression], f"table{places.tolist()}:{at.key}", at.loops, extent, promised=True)


def _share(at: Index, shares: np.ndarray[Any, Any]) -> Any:
    """Return a tap's share: one number, a number for each place in a period, or one from the table."""
    for period in range(1, _SMALL_FACTOR + 1):
        repeated = np.resize(shares[:period], len(shares))
        if np.array_equal(repeated, shares):
            numbers = [hl.f32(float(each)) for each in shares[:period]]
            return numbers[0] if period == 1 else hl.mux((at % period).expression, numbers)
    return _table(shares)[at.expression]


def _table(numbers: np.ndarray[Any, Any]) -> Any:
    """Return numbers that are compiled into the kernel; a copy, since Halide keeps no reference to NumPy's memory."""
    return hl.Buffer(np.ascontiguousarray(numbers)).copy()


def _check(op: Op) -> None:
    if 0 in op.shape(0) or 0 in op.result():
        raise Refused("Resize of an empty tensor")
    axes = axes_of(op)
    if not op.kind(0).is_float and any(each.taps > 1 for each in axes):
        raise Refused("Resize of integers that mixes them")


RESIZING: Mapping[str, Operator] = MappingProxyType(
    {"Resize": Operator(define=_resize, types=FLOATS - {"f64"} | INTEGERS, check=_check)}
)
