"""Judge choices by the values behind them: which index, which side of a comparison, which integer.

Two correct kernels that compute scores with different rounding choose differently where scores tie within it. Neither
is wrong, so a choice is correct if some scores within tolerance of the expected ones lead to it: the score at an index
is as good as the best one, a number may lie on either side of a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import onnx_ir as ir

from collage.reference.conditioning import Conditioning

Behind: TypeAlias = tuple[np.ndarray[Any, Any], Conditioning | None]
"""Values that a choice is between, and how far they may be off; None for values that a kernel is given."""

_POSITIONS: Final = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
"""Operators that choose positions along an axis, with the number of the output that holds them."""
_STEPS: Final = frozenset({"Cast", "CastLike", "Ceil", "Floor", "Round", "Sign"})
"""Monotonic functions that are constant between steps."""
_COMPARISONS: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_DECIDING: Final = frozenset({*_POSITIONS, *_STEPS, *_COMPARISONS}) | {
    *("Compress", "DynamicQuantizeLinear", "GridSample", "Hardmax", "IsInf", "IsNaN", "Loop", "If", "Scan", "Mod"),
    *("NonMaxSuppression", "NonZero", "QuantizeLinear", "RoiAlign", "SequenceMap", "Unique"),
}
"""Operators whose result may change by more than rounding where their operands change by rounding."""
_UNDEFINED: Final = frozenset(
    {"Clip", "Div", "LeakyRelu", "Max", "MaxPool", "Min", "PRelu", "ReduceMax", "ReduceMin", "Relu"}
)
"""Operators whose result for NaN, or for a division of integers by zero, the standard leaves open."""
_MOVING: Final = frozenset(
    {"Cast", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "SpaceToDepth", "Squeeze"}
    | {"Tile", "Transpose", "Unsqueeze"}
)
"""Operators whose output elements are elements of their first input."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A choice and what moves it to an output.

    Attributes:
        node: The node that chooses.
        path: Nodes from there to the output; each moves elements of its first input, or changes their type.
    """

    node: ir.Node
    path: tuple[ir.Node, ...]

    @property
    def operands(self) -> tuple[ir.Value, ...]:
        """Values that the choice is between."""
        count = 2 if self.node.op_type in _COMPARISONS else 1
        return tuple(value for value in self.node.inputs[:count] if value is not None)

    @property
    def needed(self) -> tuple[ir.Value, ...]:
        """Values that say whether a choice is right: the operands, and constants on the path."""
        others = [*self.node.inputs[len(self.operands) :], *(value for node in self.path for value in node.inputs[1:])]
        return (*self.operands, *(value for value in others if value is not None))


def is_open(node: ir.Node) -> bool:
    """Return whether other roundings of a node's operands may change its results by more than rounding."""
    standard = node.domain in ("", "ai.onnx")
    return not standard or node.op_type in _DECIDING or node.op_type in _UNDEFINED


def is_undefined_at(node: ir.Node) -> bool:
    """Return whether the standard leaves a node's result open for some operands."""
    return node.op_type in _UNDEFINED


def depends_on_open(graph: ir.Graph) -> frozenset[ir.Value]:
    """Return the values of a graph that depend on a node in it which `is_open`."""
    found: set[ir.Value] = set()
    for node in graph:
        if is_open(node) or not found.isdisjoint(filter(None, node.inputs)):
            found.update(node.outputs)
    return frozenset(found)


def choice_behind(output: ir.Value) -> Choice | None:
    """Return the choice that a value's elements are, if they are choices between numbers.

    Args:
        output: Output of a graph.
    """
    value = output
    path: list[ir.Node] = []
    while True:
        node = value.producer()
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if _chooses(node, value):
            return Choice(node, tuple(reversed(path)))
        if node.op_type not in _MOVING or node.inputs[0] is None:
            return None
        path.append(node)
        value = node.inputs[0]


def is_moved(value: ir.Value, given: Callable[[ir.Value], bool]) -> bool:
    """Return whether a value's elements are elements of one that is given, in other places.

    Args:
        value: A value of a graph.
        given: Tells which values are.
    """
    while not given(value):
        node = value.producer()
        standard = node is not None and node.domain in ("", "ai.onnx") and node.op_type in _MOVING - {"Cast"}
        if node is None or not standard or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return True


def needed_values(values: Iterable[ir.Value]) -> frozenset[str]:
    """Return the names of what judging the choices behind some values takes."""
    choices = filter(None, map(choice_behind, values))
    return frozenset(str(value.name) for choice in choices for value in choice.needed)


def wrong_choices(choice: Choice, made: Any, expected: Any, read: Callable[[ir.Value], Behind]) -> int:
    """Count the elements that no values within tolerance lead to.

    Args:
        choice: The choice behind an output.
        made: What a kernel wrote.
        expected: The reference's choice, of the same shape and type.
        read: Returns what the choice is between, and constants on its path.
    """
    everything = np.asarray(made)
    made, expected = everything.reshape(-1), np.asarray(expected).reshape(-1)
    places = np.flatnonzero(made != expected)
    places = places[~((made[places] != made[places]) & (expected[places] != expected[places]))]  # NaN twice
    origins = _origins(choice, read).reshape(-1)[places]
    made, expected = made[places], expected[places]
    if choice.node.op_type in _POSITIONS:
        fits = _as_good(choice.node, made, expected, origins, read)
    elif choice.node.op_type in _COMPARISONS:
        fits = _is_boolean(made) & _may_compare(choice, origins, read)
    else:
        fits = _may_round(choice, made, origins, read)
    return int(np.count_nonzero(~fits)) + _taken_twice(choice, everything)


def _taken_twice(choice: Choice, made: np.ndarray[Any, Any]) -> int:
    """Count the positions that TopK returns more than once, where nothing moves its result."""
    if choice.node.op_type != "TopK" or choice.path:
        return 0
    ordered = np.sort(made, axis=_axis(choice.node, made.ndim))
    return int(np.count_nonzero(np.diff(ordered, axis=_axis(choice.node, made.ndim)) == 0))


def _chooses(node: ir.Node, value: ir.Value) -> bool:
    if node.op_type in _POSITIONS:
        return value is node.outputs[_POSITIONS[node.op_type]]
    first = node.inputs[0] if node.inputs else None
    of_numbers = first is not None and first.dtype is not None and first.dtype.is_floating_point()
    if node.op_type in ("Cast", "CastLike"):
        return of_numbers and value.dtype is not None and not value.dtype.is_floating_point()
    return of_numbers and (node.op_type in _STEPS or node.op_type in _COMPARISONS)


def _origins(choice: Choice, read: Callable[[ir.Value], Behind]) -> np.ndarray[Any, Any]:
    """Return for each element of the output which element of the choice it is."""
    from collage.reference.evaluator import NodeEvaluator  # imports ONNX's operators, which a right choice spares

    shape = _chosen_shape(choice, read)
    carried: Any = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
    graph = choice.node.graph
    evaluator = NodeEvaluator({} if graph is None else graph.opset_imports)
    for node in choice.path:
        if node.op_type == "Cast":
            continue
        scope: Mapping[ir.Value, Any] = {value: read(value)[0] for value in node.inputs[1:] if value is not None}
        [carried] = evaluator.run(node, {**scope, _operand(node, 0): carried})
    return np.asarray(carried)


def _chosen_shape(choice: Choice, read: Callable[[ir.Value], Behind]) -> tuple[int, ...]:
    node = choice.node
    shapes = [read(value)[0].shape for value in choice.operands]
    if node.op_type not in _POSITIONS:
        return np.broadcast_shapes(*shapes)
    axis, [shape] = _axis(node, len(shapes[0])), shapes
    if node.op_type == "TopK":
        taken = int(np.asarray(read(_operand(node, 1))[0]).item())
        return (*shape[:axis], taken, *shape[axis + 1 :])
    kept = (1,) if node.attributes.get_int("keepdims", 1) else ()
    return (*shape[:axis], *kept, *shape[axis + 1 :])


def _operand(node: ir.Node, number: int) -> ir.Value:
    value = node.inputs[number]
    assert value is not None
    return value


def _axis(node: ir.Node, rank: int) -> int:
    return node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0) % max(rank, 1)


def _as_good(
    node: ir.Node,
    made: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    origins: np.ndarray[Any, Any],
    read: Callable[[ir.Value], Behind],
) -> np.ndarray[Any, Any]:
    """Return where the score at the index made is within tolerance of that at the expected one."""
    scores, conditioning = read(_operand(node, 0))
    axis = _axis(node, scores.ndim)
    rows = np.moveaxis(scores, axis, -1)
    extent = rows.shape[-1]
    rows = rows.reshape(-1, extent)
    # elements of the choice are numbered with the axis in its place, rows without it
    outer = int(np.prod(scores.shape[:axis], dtype=np.int64))
    inner = int(np.prod(scores.shape[axis + 1 :], dtype=np.int64))
    ranks = int(np.asarray(read(_operand(node, 1))[0]).item()) if node.op_type == "TopK" else 1
    row = (origins // (ranks * inner)) % max(outer, 1) * inner + origins % inner
    index, right = made.astype(np.int64), expected.astype(np.int64)
    possible = (index >= 0) & (index < extent)
    one = rows[row, np.where(possible, index, 0)].astype(np.float64)
    other = rows[row, right].astype(np.float64)
    allowed = _allowed(one, conditioning) + _allowed(other, conditioning)
    fits: np.ndarray[Any, Any] = possible & ((np.abs(one - other) <= allowed) | (one == other))
    return fits


def _is_boolean(made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what is false or true, perhaps cast to another type."""
    found: np.ndarray[Any, Any] = (made == made.dtype.type(0)) | (made == made.dtype.type(1))
    return found


def _may_compare(choice: Choice, origins: np.ndarray[Any, Any], read: Callable[[ir.Value], Behind]) -> Any:
    """Return where two numbers are within tolerance of each other; exact ones compare in one way only."""
    shape = _chosen_shape(choice, read)
    sides = []
    allowed = np.zeros(origins.shape)
    for value in choice.operands:
        numbers, conditioning = read(value)
        side = np.broadcast_to(numbers, shape).reshape(-1)[origins].astype(np.float64)
        sides.append(side)
        allowed += _allowed(side, conditioning)
    if len(sides) == 1:  # compared with itself
        return np.ones(origins.shape, bool)
    with np.errstate(invalid="ignore"):  # infinities of one sign
        return (allowed > 0) & (np.abs(sides[0] - sides[1]) <= allowed)


def _allowed(numbers: np.ndarray[Any, Any], conditioning: Conditioning | None) -> np.ndarray[Any, Any]:
    """Return how far each number may be off; what is infinite is exact."""
    if conditioning is None:
        return np.zeros(numbers.shape)
    return np.where(np.isfinite(numbers), conditioning.tolerance(numbers), 0.0)


def _may_round(choice: Choice, made: np.ndarray[Any, Any], origins: np.ndarray[Any, Any], read: Any) -> Any:
    """Return where a number within tolerance of the expected one is rounded so, or where the result is undefined."""
    from collage.reference.evaluator import NodeEvaluator

    node = choice.node
    numbers, conditioning = read(_operand(node, 0))
    near = numbers.reshape(-1)[origins]
    wide = near.astype(np.float64)
    allowed = np.zeros(wide.shape) if conditioning is None else conditioning.tolerance(wide)
    to = node.outputs[0].dtype
    if to is not None and not to.is_floating_point():
        least, most = (0, 1) if to == ir.DataType.BOOL else (to.min, to.max)
        undefined = ~np.isfinite(wide) | (to != ir.DataType.BOOL) & ((wide - allowed < least) | (wide + allowed > most))
        if to == ir.DataType.BOOL:
            return _is_boolean(made) & (allowed > 0) & (np.abs(wide) <= allowed)
    else:
        undefined = np.zeros(wide.shape, bool)
    graph = node.graph
    evaluator = NodeEvaluator({} if graph is None else graph.opset_imports)
    rest = {value: read(value)[0] for value in node.inputs[1:] if value is not None}
    with np.errstate(all="ignore"):
        [low] = evaluator.run(node, {**rest, _operand(node, 0): (wide - allowed).astype(near.dtype)})
        [high] = evaluator.run(node, {**rest, _operand(node, 0): (wide + allowed).astype(near.dtype)})
    found = made.astype(np.float64)
    return undefined | ((found >= low.astype(np.float64)) & (found <= high.astype(np.float64)))
