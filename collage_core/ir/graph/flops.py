"""Count the arithmetic operations of nodes from shapes: two for a multiply-add, one for any other.

Counts are what a direct algorithm has to compute. Taps of a window that fall into padding do not count, and neither
does the gates' arithmetic of recurrent operators, so a count is nearly a lower bound for direct algorithms. Others need
fewer: Winograd's convolution, Strassen's product. Published counts usually include padding, so those of ResNet-50 are
four per cent larger.

`work.py` estimates roughly how long nodes take, before anything is measured; here nothing is estimated.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.walk import bodies
from collage_core.ir.operators.op_kind import OpPatternKind, known_kind

Shape = tuple[int, ...]


def node_flops(graph: DataflowGraph, index: int) -> float | None:
    """Return the number of arithmetic operations of a node.

    None where it does not follow from shapes: bodies, data-dependent shapes, operators outside ONNX's own domain and
    those that nobody has counted here.
    """
    node = graph.nodes[index]
    if node.domain not in ("", "ai.onnx") or any(True for _ in bodies(node)):
        return None
    inputs = tuple(_shape(graph, value) for value in node.inputs)
    outputs = tuple(_shape(graph, value) for value in node.outputs if value.name)
    if any(shape is None for shape in outputs) or any(
        shape is None and value is not None for shape, value in zip(inputs, node.inputs, strict=True)
    ):
        return None
    call = _Call(node, inputs, tuple(shape for shape in outputs if shape is not None))
    counted = _COUNTED.get(node.op_type)
    if counted is not None:
        return float(counted(call))
    kind = known_kind(node.op_type)
    if node.op_type in _FREE or kind is OpPatternKind.INJECTIVE:
        return 0.0
    if kind is None or kind >= OpPatternKind.OUT_ELEMENTWISE_FUSABLE:
        return None
    return float(call.read if kind is OpPatternKind.REDUCTION else call.written)


@dataclasses.dataclass(frozen=True)
class _Call:
    """A node with the shapes of its inputs, None for an absent one, and of its outputs."""

    node: onnx_ir.Node
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape, ...]

    def input(self, position: int) -> Shape:
        """Return the shape of an input; that of a scalar if it is absent."""
        return (self.inputs[position] if position < len(self.inputs) else None) or ()

    @property
    def read(self) -> int:
        """Elements of the first input."""
        return math.prod(self.input(0))

    @property
    def written(self) -> int:
        """Elements of all outputs."""
        return sum(math.prod(shape) for shape in self.outputs)

    def number(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        return self.node.attributes.get_int(name, default)

    def numbers(self, name: str, default: Sequence[int]) -> Sequence[int]:
        """Return an attribute of integers."""
        return self.node.attributes.get_ints(name, tuple(default))

    def text(self, name: str, default: str) -> str:
        """Return an attribute of text."""
        return self.node.attributes.get_string(name, default)


def _shape(graph: DataflowGraph, value: onnx_ir.Value | None) -> Shape | None:
    if value is None:
        return None
    spec = graph.spec(value)
    return spec.static_shape if spec.has_known_shape else None


# Windows


def _taps(extent: int, positions: int, window: int, stride: int, dilation: int, before: int) -> int:
    """Return how many taps of a window lie inside along one axis, over all its positions.

    Args:
        extent: Extent of what it slides over.
        positions: Number of its positions.
        window: Number of taps.
        stride: Distance of two positions.
        dilation: Distance of two taps.
        before: Padding before the first element.
    """
    inside = 0
    for tap in range(window):
        first = -((tap * dilation - before) // stride)  # of the positions at which this tap is at or after 0
        last = (extent - 1 + before - tap * dilation) // stride
        inside += max(0, min(last, positions - 1) - max(first, 0) + 1)
    return inside


def _window(call: _Call, window: Shape, over: Shape, positions: Shape) -> int:
    """Return the taps inside over all axes; `over` and `positions` are spatial shapes.

    Of a transposed convolution the outputs are what the window slides over, and the inputs its positions.
    """
    rank = len(window)
    strides, dilations = call.numbers("strides", (1,) * rank), call.numbers("dilations", (1,) * rank)
    pads, beyond = call.numbers("pads", (0,) * 2 * rank), call.numbers("output_padding", (0,) * rank)
    how = call.text("auto_pad", "NOTSET")
    derived = how in ("SAME_UPPER", "SAME_LOWER") or "output_shape" in call.node.attributes
    product = 1
    for axis, (taps, extent, count, stride, dilation) in enumerate(
        zip(window, over, positions, strides, dilations, strict=True)
    ):
        before = pads[axis]
        if derived:
            total = max(0, (count - 1) * stride + beyond[axis] + (taps - 1) * dilation + 1 - extent)
            before = total // 2 if how == "SAME_UPPER" else total - total // 2
        product *= _taps(extent, count, taps, stride, dilation, 0 if how == "VALID" else before)
    return product


def _convolution(call: _Call) -> float:
    return _integer_convolution(call) + _bias(call)


def _integer_convolution(call: _Call, weight: int = 1) -> float:
    data, kernel, out = call.input(0), call.input(weight), call.outputs[0]
    return 2.0 * out[0] * kernel[0] * kernel[1] * _window(call, kernel[2:], data[2:], out[2:])


def _transposed_convolution(call: _Call) -> float:
    data, kernel, out = call.input(0), call.input(1), call.outputs[0]
    return 2.0 * data[0] * data[1] * kernel[1] * _window(call, kernel[2:], out[2:], data[2:]) + _bias(call)


def _bias(call: _Call) -> int:
    return call.written if len(call.inputs) > 2 and call.inputs[2] is not None else 0


def _deformable_convolution(call: _Call) -> float:
    return 2.0 * call.written * math.prod(call.input(1)[1:])


def _pooling(call: _Call, per_tap: int = 1) -> float:
    data, out = call.input(0), call.outputs[0]
    window = tuple(call.numbers("kernel_shape", ()))
    return float(per_tap * out[0] * out[1] * _window(call, window, data[2:], out[2:]))


# Products


def _product(call: _Call) -> float:
    return 2.0 * call.written * call.input(0)[-1]


def _gemm(call: _Call) -> float:
    depth = call.input(0)[0 if call.number("transA", 0) else 1]
    return 2.0 * call.written * depth + _bias(call)


def _einsum(call: _Call) -> float:
    terms, arrow, result = call.text("equation", "").replace(" ", "").partition("->")
    extents: dict[str, int] = {}
    operands = []
    for term, position in zip(terms.split(","), range(len(call.inputs)), strict=True):
        labels = _labels(term, len(call.input(position)))
        operands.append(frozenset(labels))
        for label, extent in zip(labels, call.input(position), strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    kept = frozenset(_labels(result, len(call.outputs[0]))) if arrow else _implicit(terms, operands)
    return _contracted(tuple(operands), kept, extents)


def _labels(term: str, rank: int) -> list[str]:
    """Return a label per axis; those of an ellipsis are numbered from its end, as they are broadcast."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"...{hidden - position}" for position in range(hidden)), *after]


def _implicit(terms: str, operands: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the labels of the result where the equation has no arrow: those that occur once, and any ellipsis."""
    return frozenset(label for each in operands for label in each if label[0] == "." or terms.count(label) == 1)


def _contracted(operands: tuple[frozenset[str], ...], kept: frozenset[str], extents: Mapping[str, int]) -> float:
    """Return the operations of the cheapest order in which to contract operands two by two."""

    def volume(labels: frozenset[str]) -> float:
        return math.prod(extents[label] for label in labels)

    if len(operands) == 1:
        return volume(operands[0]) if operands[0] - kept else 0.0
    best = math.inf
    for one, other in itertools.combinations(range(len(operands)), 2):
        rest = tuple(each for at, each in enumerate(operands) if at not in (one, other))
        joined = operands[one] | operands[other]
        left = joined & kept.union(*rest)
        cost = (2.0 if joined - left else 1.0) * volume(joined)
        if cost < best:
            best = min(best, cost + (_contracted((left, *rest), kept, extents) if rest else 0.0))
    return best


def _recurrent(call: _Call) -> float:
    return 2.0 * math.prod(call.input(0)[:2]) * (math.prod(call.input(1)) + math.prod(call.input(2)))


def _attention(call: _Call) -> float:
    query, key, value = (call.input(position) for position in range(3))
    if len(query) == 3:  # heads side by side
        heads, shared = call.number("q_num_heads", 1), call.number("kv_num_heads", 1)
        query = (query[0], heads, query[1], query[2] // heads)
        key, value = ((each[0], shared, each[1], each[2] // shared) for each in (key, value))
    past = call.input(4)[2] if call.input(4) else 0
    rows, columns = query[2], key[2] + past
    pairs = rows * columns
    if call.number("is_causal", 0):
        pairs = sum(min(columns, row + 1 + past) for row in range(rows))
    pairs *= query[0] * query[1]
    return pairs * (2.0 * (query[3] + value[3]) + _SOFTMAX)


# The rest

_SOFTMAX = 4
"""Operations of an element: maximum, subtraction, exponential, sum; the division is one more per row or element."""

_NORMALISED = 5
"""Operations of an element: mean, two for the variance, two to scale."""


def _resize(call: _Call) -> float:
    """Count the last pass of a separable interpolation; nothing where no axis changes, or elements are copied."""
    taps = {"nearest": 0, "linear": 2, "cubic": 4}.get(call.text("mode", "nearest"), 0)
    return 2.0 * taps * call.written if call.input(0) != call.outputs[0] else 0.0


def _grid_sample(call: _Call) -> float:
    rank = len(call.input(0)) - 2
    taps = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(call.text("mode", "linear"), 0)
    return 2.0 * taps**rank * call.written if taps else 0.0


def _region_of_interest(call: _Call) -> float:
    return 8.0 * call.written * max(1, call.number("sampling_ratio", 0)) ** 2


def _local_response(call: _Call) -> float:
    return float(call.written * (call.number("size", 1) + 2))


def _variadic(call: _Call) -> float:
    return float(max(1, len(call.inputs) - 1) * call.written)


def _per_read(count: int) -> Callable[[_Call], float]:
    return lambda call: float(count * call.read)


def _per_written(count: int) -> Callable[[_Call], float]:
    return lambda call: float(count * call.written)


_FREE = frozenset({"Constant", "Dropout", "Expand", "Identity", "Shape", "Size"})
"""Operators that compute nothing, beside those of the kind INJECTIVE, which move elements."""

_COUNTED: Mapping[str, Callable[[_Call], float]] = MappingProxyType(
    {
        "Conv": _convolution,
        "ConvInteger": _integer_convolution,
        "QLinearConv": functools.partial(_integer_convolution, weight=3),
        "ConvTranspose": _transposed_convolution,
        "DeformConv": _deformable_convolution,
        "MaxPool": _pooling,
        "AveragePool": _pooling,
        "LpPool": functools.partial(_pooling, per_tap=2),
        "MatMul": _product,
        "MatMulInteger": _product,
        "QLinearMatMul": _product,
        "Gemm": _gemm,
        "Einsum": _einsum,
        "RNN": _recurrent,
        "GRU": _recurrent,
        "LSTM": _recurrent,
        "Attention": _attention,
        "Resize": _resize,
        "Upsample": _resize,
        "GridSample": _grid_sample,
        "RoiAlign": _region_of_interest,
        "LRN": _local_response,
        **dict.fromkeys(("Sum", "Mean", "Max", "Min"), _variadic),
        **dict.fromkeys(("BatchNormalization", "QuantizeLinear", "DequantizeLinear"), _per_written(2)),
        **dict.fromkeys(("Softmax", "LogSoftmax"), _per_written(_SOFTMAX)),
        **dict.fromkeys(
            (
                "LayerNormalization",
                "InstanceNormalization",
                "GroupNormalization",
                "MeanVarianceNormalization",
            ),
            _per_read(_NORMALISED),
        ),
        **dict.fromkeys(("ReduceL2", "ReduceSumSquare"), _per_read(2)),
        **dict.fromkeys(("RMSNormalization", "LpNormalization"), _per_read(4)),
        **dict.fromkeys(("CumSum", "CumProd", "TopK", "ArgMax", "ArgMin", "MaxUnpool"), _per_read(1)),
        **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND", "TensorScatter"), _per_read(0)),
        **dict.fromkeys(("RotaryEmbedding", "SwiGLU"), _per_written(3)),
    }
)
"""Operators of which a count is known that does not follow from their kind; a function of shapes and attributes."""
