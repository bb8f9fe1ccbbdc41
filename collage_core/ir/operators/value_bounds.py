"""Compute upper bounds of data-dependent shapes, and the resulting specs of values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir

from collage_core.errors import ModelError
from collage_core.ir.operators.op_kind import STANDARD_KINDS, OpPatternKind
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import largest_at, shape_at, typical_sizes
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind, name_of_type

Bound = tuple[int, ...]

BOUND_METADATA = "collage.bound"
"""Metadata key of a value in a partitioned model that holds the bound of a bounded value, as JSON."""

MAX_BOUNDED_BYTES = 256 << 20
"""Maximum size of a bounded value; larger ones are foreign: NonZero of an image would reserve gigabytes."""

_MOST_AXES = 64  # as many as a NumPy array can have


def spec_of(
    value: onnx_ir.Value,
    bounds: Mapping[onnx_ir.Value, Bound] | None = None,
    sizes: Mapping[str, SizeRange] = MappingProxyType({}),
) -> TensorSpec:
    """Derive the spec of one value from its type, its metadata and inferred bounds.

    Args:
        value: A typed value.
        bounds: Result of `infer_bounds`.
        sizes: Sizes of each symbol in the shapes of the model's inputs.

    Raises:
        ModelError: If the bound in its metadata is invalid.
    """
    name = value.name or ""
    if not isinstance(value.type, onnx_ir.TensorType):
        kind = name_of_type(value.type)
        return TensorSpec(name=name, kind=ValueKind.FOREIGN, dtype=None, shape=None, type_name=kind)
    dtype = value.type.dtype
    shape = _partial(value)
    if dtype in (onnx_ir.DataType.STRING, onnx_ir.DataType.UNDEFINED):
        return TensorSpec(name=name, kind=ValueKind.FOREIGN, dtype=dtype, shape=shape)
    if shape is not None and None not in shape:
        return TensorSpec(name=name, dtype=dtype, shape=shape)
    if sizes and value.shape is not None:
        typical, largest = shape_at(value.shape, typical_sizes(sizes)), largest_at(value.shape, sizes)
        if typical is not None and largest is not None:
            return TensorSpec(name=name, kind=ValueKind.SIZED, dtype=dtype, shape=shape, bound=largest, typical=typical)
    bound = (bounds or {}).get(value)
    if bound is None and BOUND_METADATA in value.metadata_props:
        bound = _bound_said(value)
    if bound is not None and math.prod(bound) * np.dtype(dtype.numpy()).itemsize <= MAX_BOUNDED_BYTES:
        return TensorSpec(name=name, kind=ValueKind.BOUNDED, dtype=dtype, shape=shape, bound=bound)
    return TensorSpec(name=name, kind=ValueKind.FOREIGN, dtype=dtype, shape=shape)


def _bound_said(value: onnx_ir.Value) -> Bound:
    try:
        bound = json.loads(value.metadata_props[BOUND_METADATA])
    except (ValueError, RecursionError):
        bound = None
    if not isinstance(bound, list) or len(bound) > _MOST_AXES or any(type(n) is not int or n < 0 for n in bound):
        raise ModelError(f"value {value.name!r}: its metadata {BOUND_METADATA!r} is no list of extents")
    if value.shape is not None and len(bound) != len(value.shape):
        raise ModelError(f"value {value.name!r}: its metadata {BOUND_METADATA!r} is of another rank than its shape")
    return tuple(bound)


def infer_bounds(nodes: Iterable[onnx_ir.Node]) -> dict[onnx_ir.Value, Bound]:
    """Infer bounds of values without a static shape, where they can be derived.

    Args:
        nodes: Nodes in topological order, shapes inferred.

    Returns:
        The largest extent of each axis, by value; values with a static shape and values of unknown bound are omitted.
    """
    bounds: dict[onnx_ir.Value, Bound] = {}
    for node in nodes:
        unknown = [value for value in node.outputs if value.name and _static(value) is None]
        if not unknown or node.domain not in ("", "ai.onnx"):
            continue
        rule = _RULES.get(node.op_type) or _by_kind(node.op_type)
        if rule is None:
            continue
        try:
            found = rule(_Operands(node, bounds))
        except (_Unknown, IndexError):
            continue
        for position, value in enumerate(node.outputs):
            if value in unknown and position < len(found):
                bound = _refined(value, found[position])
                if bound is not None:
                    bounds[value] = bound
    return bounds


class _Unknown(Exception):  # noqa: N818  control flow of this module only
    """A rule needs an unknown fact."""


class _Operands:
    """Facts about a node that a rule may query."""

    def __init__(self, node: onnx_ir.Node, bounds: Mapping[onnx_ir.Value, Bound]) -> None:
        self.node = node
        self._bounds = bounds

    def has(self, position: int) -> bool:
        return position < len(self.node.inputs) and self.node.inputs[position] is not None

    def upper(self, position: int) -> Bound:
        value = self.node.inputs[position]
        if value is None:
            raise _Unknown
        shape = _static(value)
        if shape is None:
            shape = self._bounds.get(value)
        if shape is None:
            raise _Unknown
        return shape

    def all_upper(self) -> list[Bound]:
        return [self.upper(position) for position in range(len(self.node.inputs)) if self.has(position)]

    def static_extent(self, position: int, axis: int) -> int:
        value = self.node.inputs[position]
        shape = _partial(value) if value is not None else None
        extent = shape[axis] if shape is not None else None
        if extent is None:
            raise _Unknown
        return extent

    def constant(self, position: int) -> list[int]:
        tensor = constant_of(self.node.inputs[position]) if self.has(position) else None
        if tensor is None:
            raise _Unknown
        return [int(item) for item in np.asarray(tensor.numpy()).reshape(-1)]

    def attribute(self, name: str, default: int | None) -> int | None:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def axes(self, position: int) -> list[int] | None:
        """Return the axes from an input (newer opsets) or an attribute (older ones); None if not given."""
        if self.has(position):
            return self.constant(position)
        attribute = self.node.attributes.get("axes")
        return None if attribute is None else list(attribute.as_ints())


def _partial(value: onnx_ir.Value) -> tuple[int | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else None for extent in value.shape)


def _static(value: onnx_ir.Value) -> Bound | None:
    shape = _partial(value)
    if shape is None:
        return None
    known = tuple(extent for extent in shape if extent is not None)
    return known if len(known) == len(shape) else None


def _refined(value: onnx_ir.Value, bound: Bound) -> Bound | None:
    """Refine a bound with the extents known from shape inference; return None if the two ranks differ."""
    shape = _partial(value)
    if shape is None:
        return bound
    if len(shape) != len(bound):
        return None
    return tuple(b if s is None else s for s, b in zip(shape, bound, strict=True))


def _broadcast(shapes: list[Bound]) -> Bound:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(extents) for extents in zip(*padded, strict=True))


def _as_first(op: _Operands) -> list[Bound]:
    return [op.upper(0)] * len(op.node.outputs)


def _as_broadcast(op: _Operands) -> list[Bound]:
    return [_broadcast(op.all_upper())]


def _by_kind(op_type: str) -> Callable[[_Operands], list[Bound]] | None:
    kind = STANDARD_KINDS.get(op_type)
    if kind is OpPatternKind.ELEMENTWISE:
        return _as_first
    if kind is OpPatternKind.BROADCAST and op_type != "Expand":
        return _as_broadcast
    if op_type.startswith(("Reduce", "Arg")):
        return _reduce
    return None


def _non_max_suppression(op: _Operands) -> list[Bound]:
    most = op.constant(2)[0] if op.has(2) else 0  # the default selects nothing
    batches, classes, boxes = op.upper(1)
    return [(batches * classes * min(most, boxes), 3)]


def _non_zero(op: _Operands) -> list[Bound]:
    shape = op.upper(0)
    return [(len(shape), math.prod(shape))]


def _unique(op: _Operands) -> list[Bound]:
    shape = op.upper(0)
    axis = op.attribute("axis", None)
    if axis is None:
        return [(math.prod(shape),)] * 4
    return [shape, *([(shape[axis],)] * 3)]


def _compress(op: _Operands) -> list[Bound]:
    shape, condition = op.upper(0), op.upper(1)[0]
    axis = op.attribute("axis", None)
    if axis is None:
        return [(min(math.prod(shape), condition),)]
    return [_replaced(shape, axis, min(shape[axis], condition))]


def _top_k(op: _Operands) -> list[Bound]:
    shape = op.upper(0)
    axis = op.attribute("axis", -1)
    assert axis is not None
    try:
        count = op.constant(1)[0]
    except _Unknown:
        count = shape[axis]
    return [_replaced(shape, axis, min(count, shape[axis]))] * 2


def _gather(op: _Operands) -> list[Bound]:
    data, indices = op.upper(0), op.upper(1)
    axis = (op.attribute("axis", 0) or 0) % len(data)
    return [data[:axis] + indices + data[axis + 1 :]]


def _gather_nd(op: _Operands) -> list[Bound]:
    data, indices = op.upper(0), op.upper(1)
    batch = op.attribute("batch_dims", 0) or 0
    return [indices[:-1] + data[batch + op.static_extent(1, -1) :]]


def _squeeze(op: _Operands) -> list[Bound]:
    shape, axes = op.upper(0), op.axes(1)
    if axes is None:  # removes whatever has extent one, which a bound does not say
        raise _Unknown
    dropped = {axis % len(shape) for axis in axes}
    return [tuple(extent for axis, extent in enumerate(shape) if axis not in dropped)]


def _unsqueeze(op: _Operands) -> list[Bound]:
    shape, axes = op.upper(0), op.axes(1) or []
    rank = len(shape) + len(axes)
    new = {axis % rank for axis in axes}
    rest = iter(shape)
    return [tuple(1 if axis in new else next(rest) for axis in range(rank))]


def _transpose(op: _Operands) -> list[Bound]:
    shape = op.upper(0)
    attribute = op.node.attributes.get("perm")
    order = list(attribute.as_ints()) if attribute is not None else list(reversed(range(len(shape))))
    return [tuple(shape[axis] for axis in order)]


def _concat(op: _Operands) -> list[Bound]:
    shapes = op.all_upper()
    axis = op.attribute("axis", 0) or 0
    extents = [max(column) for column in zip(*shapes, strict=True)]
    extents[axis] = sum(shape[axis] for shape in shapes)
    return [tuple(extents)]


def _reshape(op: _Operands) -> list[Bound]:
    wanted = op.constant(1)
    if wanted.count(-1) != 1 or (0 in wanted and op.attribute("allowzero", 0)):
        raise _Unknown
    shape = [op.static_extent(0, axis) if extent == 0 else extent for axis, extent in enumerate(wanted)]
    known = math.prod(extent for extent in shape if extent != -1)
    free = math.prod(op.upper(0)) // known if known else 0
    return [tuple(free if extent == -1 else extent for extent in shape)]


def _reduce(op: _Operands) -> list[Bound]:
    shape = op.upper(0)
    if op.node.op_type.startswith("Arg"):
        axes: list[int] | None = [op.attribute("axis", 0) or 0]
    else:
        axes = op.axes(1)
    if axes is None or not axes:
        axes = [] if op.attribute("noop_with_empty_axes", 0) else list(range(len(shape)))
    reduced = {axis % len(shape) for axis in axes}
    keep = op.attribute("keepdims", 1)
    return [tuple(1 if axis in reduced else extent for axis, extent in enumerate(shape) if keep or axis not in reduced)]


def _matmul(op: _Operands) -> list[Bound]:
    left, right = op.upper(0), op.upper(1)
    if len(left) < 2 or len(right) < 2:
        raise _Unknown
    batch = _broadcast([left[:-2], right[:-2]])
    return [(*batch, left[-2], right[-1])]


def _gemm(op: _Operands) -> list[Bound]:
    left, right = op.upper(0), op.upper(1)
    rows = left[1] if op.attribute("transA", 0) else left[0]
    return [(rows, right[0] if op.attribute("transB", 0) else right[1])]


def _replaced(shape: Bound, axis: int, extent: int) -> Bound:
    extents = list(shape)
    extents[axis] = extent
    return tuple(extents)


_FIRST = """
BatchNormalization CumSum CumProd DequantizeLinear Hardmax InstanceNormalization LayerNormalization LogSoftmax
LpNormalization PRelu QuantizeLinear RMSNormalization ReverseSequence Scatter ScatterElements ScatterND Slice Softmax
Split Trilu
"""

_RULES: Mapping[str, Callable[[_Operands], list[Bound]]] = {
    **dict.fromkeys(_FIRST.split(), _as_first),
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Unique": _unique,
    "Compress": _compress,
    "TopK": _top_k,
    "Gather": _gather,
    "GatherElements": lambda op: [op.upper(1)],
    "GatherND": _gather_nd,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Reshape": _reshape,
    "MatMul": _matmul,
    "Gemm": _gemm,
}
