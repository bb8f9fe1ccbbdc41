"""Evaluate nodes with perturbed operands, to see what rounding does to their results."""

from __future__ import annotations

import dataclasses
import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from collage.reference.choices import is_open, is_undefined_at
from collage.reference.conditioning import Conditioning, conditioning_of, unit_of
from collage.reference.discrepancy import discrepancy_of, is_floating
from collage_core.ir.graph.walk import captured_values

if TYPE_CHECKING:
    from collage.reference.evaluator import NodeEvaluator

_RATIO: Final = 2.0**-10
"""Rounding relative to the perturbations where all types have at least 32 bits: these stand out from the rounding of
the reference itself, and are small enough for results to follow in proportion.
"""
_NARROW_RATIO: Final = 0.5
"""The same where some type has 16 bits, whose rounding cannot be made much larger."""
_NARROW: Final = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_LANES: Final = 8
"""Lanes in which kernels sum, in float32 at least, as far as the noise is concerned.

A sum of n terms has rounding errors of about sqrt(n / 2) times those of its terms if they are added one by one, because
partial sums grow, as in simple loops; the best libraries add up 64 or more lanes side by side. Between the two, the
margin allows either.
"""
_PERIOD: Final = 1_000_003
"""Signs of perturbations, a prime so that rows of tensors get different ones."""
_BLOCK: Final = 1 << 16
"""Elements at a time, so that what is computed of them stays in a cache."""
_EXACT_OPERANDS: Final[Mapping[str, int]] = {"Range": 0, "Resize": 1, "Upsample": 1, "Pow": 1, "Dropout": 1, "Pad": 1}
"""First operand that is not perturbed: extents follow from it, or the sign of the result."""
_APPROXIMATED: Final = frozenset(
    {"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BlackmanWindow", "Celu", "Cos", "Cosh", "DFT", "Elu", "Erf"}
    | {"Gelu", "HammingWindow", "HannWindow", "Mish", "STFT", "Selu", "Sin", "Sinh", "Softplus", "Swish", "Tan", "Tanh"}
)
"""Functions that libraries approximate with an error relative to the largest value of the function, not to its own."""
_GATED: Final = frozenset({"GRU", "LSTM", "RNN"})
"""Operators whose results depend on gates near 1, and on what is missing to 1."""
_AT_COORDINATES: Final = frozenset({"AffineGrid", "GridSample", "Resize", "RoiAlign", "Upsample"})
"""Operators that compute where in an image to read, with the rounding of numbers as large as its extent."""
_COORDINATE_SHARE: Final = 0.25
"""Rounding of a coordinate, relative to that of the extent."""


class PerturbedRun:
    """The second run of a model, beside the reference's own, with perturbed operands.

    Each operand of each node is perturbed by as much as rounding, times a constant, with a random sign. Where a node
    decides between numbers, the reference's decision stands, so that what follows stays comparable; a third value shows
    what else could have been decided.

    Args:
        graph: Graph of the model.
        evaluator: Computes nodes.
        seed: Of the signs.
    """

    def __init__(self, graph: ir.Graph, evaluator: NodeEvaluator, seed: int = 0) -> None:
        values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        self._ratio = _NARROW_RATIO if any(value.dtype in _NARROW for value in values) else _RATIO
        self._evaluator = evaluator
        self._random = np.random.default_rng(seed)
        signs = self._random.integers(0, 2, _PERIOD, dtype=np.int8).astype(np.float32) * 2 - 1
        self._signs = np.concatenate([signs, signs])
        self._perturbed: dict[ir.Value, Any] = {}
        self._units: dict[ir.Value, float] = {}
        self._otherwise: dict[ir.Value, Any] = {}
        self._shares: dict[ir.Value, float] = {}
        self._summaries: dict[ir.Value, tuple[Any, Conditioning]] = {}  # of which array, and what it is

    def follow(self, node: ir.Node, scope: Mapping[ir.Value, Any], results: Sequence[Any]) -> None:
        """Evaluate a node after the reference did.

        Args:
            node: The node.
            scope: The reference's values of all that the node reads.
            results: The reference's results.
        """
        operands = self._operands(node, scope)
        perturbed = self._evaluated(node, scope, operands, results)
        coarsest = max((self._unit_of(value, scope[value]) for value in operands), default=0.0)
        for value, right, found in zip(node.outputs, results, perturbed, strict=False):
            if _is_numbers(right):
                self._perturbed[value] = self._approximated(node, right, found)
                self._units[value] = max(unit_of(right.dtype), coarsest)
        self._decide_otherwise(node, scope, results)

    def conditioning(self, value: ir.Value, right: Any) -> Conditioning | None:
        """Return what rounding does to a value of the reference; None for what is no tensor of numbers.

        Args:
            value: An input of the graph, or an output of a node that was followed.
            right: Its value.
        """
        undecided = self._shares.get(value, 0.0)
        if not _is_numbers(right):
            return Conditioning(undecided=undecided) if isinstance(right, np.ndarray) else None
        return dataclasses.replace(self._summary(value, right), undecided=undecided)

    def _summary(self, value: ir.Value, array: np.ndarray[Any, Any]) -> Conditioning:
        """Summarise what perturbations did to a value, once for each array that it has."""
        known = self._summaries.get(value)
        if known is None or known[0] is not array:
            unit = self._unit_of(value, array)
            made = conditioning_of(array, self._perturbed.get(value), ratio=self._ratio, unit=unit)
            known = self._summaries[value] = array, made
        return known[1]

    def _unit_of(self, value: ir.Value, right: np.ndarray[Any, Any]) -> float:
        """Return the coarsest unit of rounding among what a value was computed from."""
        return self._units.get(value, unit_of(right.dtype))

    def forget(self, value: ir.Value) -> None:
        """Remove what is known of a value."""
        for known in (self._perturbed, self._otherwise, self._shares, self._summaries):
            known.pop(value, None)

    def _operands(self, node: ir.Node, scope: Mapping[ir.Value, Any]) -> dict[ir.Value, Any]:
        exact = _EXACT_OPERANDS.get(node.op_type, len(node.inputs))
        growth = math.sqrt(1 + _terms(node, scope) / _LANES)
        operands = {}
        for value in (*node.inputs[:exact], *captured_values(node)):
            if value is not None and _is_numbers(scope[value]):
                operands[value] = self._shaken(self._perturbed.get(value, scope[value]), growth)
        return operands

    def _shaken(self, array: np.ndarray[Any, Any], growth: float) -> np.ndarray[Any, Any]:
        """Return an array with each element changed by a multiple of its rounding, up or down."""
        unit = max(unit_of(array.dtype), growth * unit_of(np.dtype(np.float32)))
        amplitude = min(unit / self._ratio, 2.0**-6)
        flat = array.reshape(-1)
        wide = np.float64 if array.dtype == np.float64 else np.float32
        made = np.empty(flat.size, array.dtype)
        first = int(self._random.integers(_PERIOD))
        for start in range(0, flat.size, _PERIOD):
            part = flat[start : start + _PERIOD].astype(wide)
            with np.errstate(over="ignore", invalid="ignore"):
                factors: Any = 1 + wide(amplitude) * self._signs[first : first + part.size]
                made[start : start + _PERIOD] = part * factors  # infinities stay, as those of masks
        return made.reshape(array.shape)

    def _evaluated(
        self, node: ir.Node, scope: Mapping[ir.Value, Any], operands: Mapping[ir.Value, Any], results: Sequence[Any]
    ) -> Sequence[Any]:
        """Return a node's results for other operands; the reference's where there are none of the same shape."""
        if not operands:
            return results
        try:
            with np.errstate(all="ignore"):
                found = self._evaluator.run(node, ChainMap(dict(operands), scope))  # type: ignore[arg-type]  # read only
        except (MemoryError, TimeoutError):
            raise
        except Exception:  # whatever a node raises for operands that it was not given
            return results
        return [other if _alike(other, right) else right for other, right in zip(found, results, strict=False)]

    def _approximated(self, node: ir.Node, right: Any, found: Any) -> Any:
        """Return a perturbed result, finite where the reference's is, with the errors inside of operators."""
        if right.size and node.op_type in _APPROXIMATED | _GATED | _AT_COORDINATES:
            low, high = _range_of(right)
            size = max(abs(low), abs(high))
            if node.op_type in _GATED:
                size = max(size, 1.0)
            elif node.op_type in _AT_COORDINATES:  # neighbours differ by no more than all elements do
                size += (high - low) * _COORDINATE_SHARE * max(right.shape[2:], default=1)
            found = self._moved(found, lambda _: unit_of(right.dtype) / self._ratio * size)
        stays = np.isfinite(found)
        return found if stays.all() else np.where(stays | ~np.isfinite(right), found, right)

    def _moved(self, array: np.ndarray[Any, Any], by: Callable[[np.ndarray[Any, Any]], Any]) -> np.ndarray[Any, Any]:
        """Return an array with each element moved up or down; what is not finite stays.

        Args:
            array: The array.
            by: Given some of the elements, returns how far to move each.
        """
        flat, made = array.reshape(-1), np.empty(array.size, array.dtype)
        for start in range(0, flat.size, _BLOCK):
            part, first = flat[start : start + _BLOCK], start % _PERIOD
            with np.errstate(invalid="ignore", over="ignore"):
                moved = (part + by(part) * self._signs[first : first + part.size]).astype(array.dtype)
            finite = np.isfinite(part)
            made[start : start + _BLOCK] = moved if finite.all() else np.where(finite, moved, part)
        return made.reshape(array.shape)

    def _decide_otherwise(self, node: ir.Node, scope: Mapping[ir.Value, Any], results: Sequence[Any]) -> None:
        """Record what a node gives where earlier choices, or its own, fall otherwise within tolerance."""
        read = [value for value in (*node.inputs, *captured_values(node)) if value is not None]
        operands = {value: self._otherwise[value] for value in read if value in self._otherwise}
        if is_open(node):
            operands |= self._nudged(node, {**scope, **operands})
        if not operands:
            return
        try:
            with np.errstate(all="ignore"):
                found = self._evaluator.run(node, ChainMap(operands, scope))  # type: ignore[arg-type]  # read only
        except (MemoryError, TimeoutError):
            raise
        except Exception:  # whatever a node raises for operands that it was not given
            found = (None,) * len(results)
        for value, right, other in zip(node.outputs, results, found, strict=False):
            if not isinstance(right, np.ndarray) or not right.size:
                continue
            if not _alike(other, right):
                self._shares[value] = 1.0
                continue
            differing = discrepancy_of(other, right, self.conditioning(value, right)).beyond
            if differing:
                self._otherwise[value] = other
                self._shares[value] = differing / right.size

    def _nudged(self, node: ir.Node, scope: Mapping[ir.Value, Any]) -> dict[ir.Value, Any]:
        """Return operands of a node within tolerance of its own, and defined where its own are not."""
        nudged: dict[ir.Value, Any] = {}
        for number, value in enumerate(node.inputs):
            if value is None or not isinstance(scope[value], np.ndarray):
                continue
            given = scope[value]
            if not _is_numbers(given):
                if node.op_type == "Div" and number == 1 and not given.all():
                    nudged[value] = np.where(given == 0, np.ones((), given.dtype), given)
                continue
            moved = given
            lost = np.isnan(given)
            if lost.any():
                moved = np.where(lost, np.zeros((), given.dtype), given)
            if value in self._perturbed and not is_undefined_at(node):
                moved = self._moved(moved, self._summary(value, given).tolerance)
            if moved is not given:
                nudged[value] = moved
        return nudged


def _range_of(array: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the smallest and the largest finite element; zeros if there is none."""
    flat, ends = array.reshape(-1), []
    for start in range(0, flat.size, _PERIOD):
        part = flat[start : start + _PERIOD].astype(np.float64)
        finite = part[np.isfinite(part)]
        if finite.size:
            ends += [float(finite.min()), float(finite.max())]
    return min(ends, default=0.0), max(ends, default=0.0)


def _is_numbers(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind == "c":
        return False
    return is_floating(value) and value.dtype.itemsize > 1


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    return bool(one.shape == other.shape and one.dtype == other.dtype)


def _terms(node: ir.Node, scope: Mapping[ir.Value, Any]) -> float:
    """Return roughly how many products or numbers a node sums for each element."""
    arrays = [scope[value] for value in node.inputs if value is not None and isinstance(scope[value], np.ndarray)]
    match node.op_type:
        case "MatMul" | "MatMulInteger" | "Attention" | "Einsum":
            return max(float(array.shape[-1]) for array in arrays) if all(a.ndim for a in arrays) else 1.0
        case "Gemm":
            return float(arrays[0].shape[1 - node.attributes.get_int("transA", 0)])
        case "Conv" | "ConvTranspose" | "DeformConv":
            weight = arrays[1]
            return float(weight.size / weight.shape[0 if node.op_type == "Conv" else 1])
        case "GRU" | "LSTM" | "RNN":
            return float(arrays[1].shape[-1] + arrays[2].shape[-1])
        case "AveragePool" | "GlobalAveragePool" | "GlobalLpPool" | "LpPool":
            return float(math.prod(node.attributes.get_ints("kernel_shape", arrays[0].shape[2:])))
        case "CumSum" | "DFT" | "STFT":
            return float(max(arrays[0].shape, default=1))
        case name if name.startswith("Reduce"):
            return float(arrays[0].size / max(1, _written(node))) if arrays else 1.0
    return 1.0


def _written(node: ir.Node) -> int:
    shape = node.outputs[0].shape
    return math.prod(map(int, shape.numpy())) if shape is not None and shape.is_static() else 1
