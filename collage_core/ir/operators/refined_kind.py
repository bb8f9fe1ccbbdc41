"""Refine the kinds of operators whose shapes or attributes make them simpler than their name implies.

Fusion decides by kinds: one that is too large costs candidates, and one that is too small proposes kernels that do
not exist. Every rule here follows from what the operator computes on these shapes; if the shapes leave it open, the
kind of the operator's name is kept. Which element a Gather reads never matters: an index from data and a constant
index result in the same loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_core.ir.operators.op_kind import STANDARD_KINDS, OpPatternKind, known_kind
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

_K = OpPatternKind
Shape = tuple[int, ...]
Refinement = Callable[[Sequence[Shape | None], Sequence[Shape], Mapping[str, Any]], OpPatternKind | None]
"""Refines a kind from input shapes (None: absent), output shapes and attributes; None: no refinement."""


def kind_of(
    op_type: str,
    domain: str = "",
    inputs: Sequence[TensorSpec | None] = (),
    outputs: Sequence[TensorSpec] = (),
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> OpPatternKind:
    """Return the kind of one operator, refined by shapes if its outputs are planned tensors.

    Args:
        op_type: Operator type.
        domain: Domain of the operator, `""` for ai.onnx.
        inputs: Specs of its inputs; None for an absent optional one.
        outputs: Specs of its outputs.
        attributes: Its attributes that are numbers, strings or sequences of these.

    Returns:
        The kind; OPAQUE for unknown operators and if an output is not a planned tensor, because a fused kernel needs
        known loops.

    Examples:
        >>> kind_of("Conv").name, kind_of("Add").name, kind_of("MyOp", "my.domain").name
        ('OUT_ELEMENTWISE_FUSABLE', 'BROADCAST', 'OPAQUE')
    """
    kind = known_kind(op_type, domain)
    if kind is None or any(spec.kind is not ValueKind.PLANNED for spec in outputs if spec.name):
        return OpPatternKind.OPAQUE
    standard = domain in ("", "ai.onnx")
    rule = (_RULES.get(op_type) or (_broadcasting if kind is _K.BROADCAST else None)) if standard else None
    shapes = [spec.static_shape for spec in outputs if spec.name]
    if rule is None or not shapes or any(spec is not None and spec.kind is not ValueKind.PLANNED for spec in inputs):
        return kind
    answer = rule([None if spec is None else spec.static_shape for spec in inputs], shapes, attributes)
    return kind if answer is None else answer


def _broadcasting(inputs: Sequence[Shape | None], outputs: Sequence[Shape], _: Mapping[str, Any]) -> _K | None:
    """Return ELEMENTWISE if only scalars are broadcast; they are part of a loop's code."""
    present = [shape for shape in inputs if shape is not None]
    return _K.ELEMENTWISE if present and all(shape in (outputs[0], ()) for shape in present) else None


def _copy(inputs: Sequence[Shape | None], outputs: Sequence[Shape], _: Mapping[str, Any]) -> _K | None:
    """Return ELEMENTWISE for a data movement operator that keeps the shape and so moves nothing."""
    return _K.ELEMENTWISE if inputs and len(outputs) == 1 and inputs[0] == outputs[0] else None


def _batch_norm(_: Sequence[Shape | None], __: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return REDUCTION in training mode, in which the operator computes the statistics itself."""
    return _K.REDUCTION if attributes.get("training_mode") else None


def _reduction(inputs: Sequence[Shape | None], outputs: Sequence[Shape], _: Mapping[str, Any]) -> _K | None:
    """Return a refined kind if only axes of extent one are reduced.

    Such a reduction is an element-wise function, possibly with a different output shape.
    """
    if not inputs or inputs[0] is None or _longer(inputs[0]) != _longer(outputs[0]):
        return None
    return _K.ELEMENTWISE if inputs[0] == outputs[0] else _K.INJECTIVE


def _softmax(inputs: Sequence[Shape | None], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return ELEMENTWISE for a softmax over one element, which is a constant.

    Before opset 13 a row also included the axes after `axis`, which was 1 by default: both are accounted for.
    """
    row = outputs[0][int(attributes.get("axis", 1)) :]
    return _K.ELEMENTWISE if row and all(extent == 1 for extent in row) else None


def _concat(inputs: Sequence[Shape | None], _: Sequence[Shape], __: Mapping[str, Any]) -> _K | None:
    """Return ELEMENTWISE for a Concat of one operand."""
    return _K.ELEMENTWISE if len(inputs) == 1 else None


def _slice(inputs: Sequence[Shape | None], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return ELEMENTWISE if the slice takes everything; inputs with steps, which may reverse, are not refined."""
    return _copy(inputs, outputs, attributes) if len(inputs) < 5 or inputs[4] is None else None


def _transpose(inputs: Sequence[Shape | None], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return ELEMENTWISE if only axes of extent one are permuted and the shape stays the same."""
    order = tuple(attributes.get("perm") or reversed(range(len(outputs[0]))))
    stays = all(axis == source or outputs[0][axis] == 1 for axis, source in enumerate(order))
    return _K.ELEMENTWISE if stays else None


def _gather(inputs: Sequence[Shape | None], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return a refined kind if the gathered axis has extent one, so that its element is repeated."""
    data, indices = inputs[0], inputs[1]
    if data is None or indices is None or len(indices) != 1 or data[int(attributes.get("axis", 0))] != 1:
        return None
    return _K.ELEMENTWISE if data == outputs[0] else _K.BROADCAST


def _product(inner: int, columns: int | None, *, in_order: bool) -> _K | None:
    """Refine the kind of a matrix product by its inner extent and number of columns.

    With an inner extent of one nothing is summed. With one column, a vector, there is one sum per row.

    The product of one row of data and a matrix stays an anchor: memory traffic is dominated by the matrix, libraries
    have kernels for it, and the products of one decoding step (Q, K, V) share their input as larger ones do.
    """
    if inner == 1:
        return _K.BROADCAST if in_order else _K.INJECTIVE
    return _K.REDUCTION if columns in (None, 1) else None


def _matmul(inputs: Sequence[Shape | None], _: Sequence[Shape], __: Mapping[str, Any]) -> _K | None:
    left, right = inputs[0], inputs[1]
    if left is None or right is None:
        return None
    columns = right[-1] if len(right) > 1 else None
    return _product(left[-1], columns, in_order=columns is not None)


def _gemm(inputs: Sequence[Shape | None], _: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    left, right = inputs[0], inputs[1]
    if left is None or right is None:
        return None
    across, down = bool(attributes.get("transA")), bool(attributes.get("transB"))
    return _product(left[0 if across else 1], right[0 if down else 1], in_order=not (across or down))


def _one_place(kernel: Sequence[int], attributes: Mapping[str, Any]) -> bool:
    """Return whether a window has extent one and stride one, without padding."""
    steps, pads = attributes.get("strides", ()), attributes.get("pads", ())
    return all(extent == 1 for extent in (*kernel, *steps)) and not any(pads)


def _conv(inputs: Sequence[Shape | None], _: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return BROADCAST for a convolution that scales each channel, e.g. the rest of a batch normalisation."""
    data, weight = inputs[0], inputs[1]
    if data is None or weight is None:
        return None
    scales = weight[1] == 1 and weight[0] == data[1] and _one_place(weight[2:], attributes)
    return _K.BROADCAST if scales else None


def _pool(inputs: Sequence[Shape | None], outputs: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Return a refined kind for a window of extent one, or of the whole input as in GlobalAveragePool."""
    data, kernel = inputs[0], tuple(attributes.get("kernel_shape", ()))
    if data is None or len(outputs) != 1 or len(kernel) != len(data) - 2:
        return None
    if _one_place(kernel, attributes):
        return _K.ELEMENTWISE
    whole = kernel == data[2:] and not any(attributes.get("pads", ()))
    return _K.REDUCTION if whole and all(extent == 1 for extent in outputs[0][2:]) else None


def _einsum(_: Sequence[Shape | None], __: Sequence[Shape], attributes: Mapping[str, Any]) -> _K | None:
    """Refine the kind of an Einsum by its summed labels.

    Without a sum it is a product of broadcast operands; with one operand, a transposition or a sum.
    """
    equation = str(attributes.get("equation", "")).replace(" ", "").replace("...", ".")
    left, arrow, result = equation.partition("->")
    operands = left.split(",")
    if not arrow:  # what occurs once, in alphabetical order; an ellipsis comes first
        result = "".join(sorted(label for label in set(left) - {","} if left.count(label) == 1 or label == "."))
    summed = set(left) - {","} - set(result)
    if len(operands) == 1:
        return _K.REDUCTION if summed else _K.INJECTIVE
    if summed:
        return _K.REDUCTION if len(operands) == 2 and any(set(each) <= summed for each in operands) else None
    in_order = all(list(each) == [label for label in result if label in each] for each in operands)
    return _K.BROADCAST if in_order else _K.INJECTIVE


def _longer(shape: Shape) -> Shape:
    """Return the extents other than one."""
    return tuple(extent for extent in shape if extent != 1)


_RULES: Mapping[str, Refinement] = {
    "BatchNormalization": _batch_norm,
    "Expand": _copy,
    "Reshape": _copy,
    "Flatten": _copy,
    "Squeeze": _copy,
    "Unsqueeze": _copy,
    "Tile": _copy,
    "DepthToSpace": _copy,
    "SpaceToDepth": _copy,
    "Split": _copy,
    "Concat": _concat,
    "Slice": _slice,
    "Transpose": _transpose,
    "Gather": _gather,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "AveragePool": _pool,
    "LpPool": _pool,
    "MaxPool": _pool,
    "Einsum": _einsum,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Hardmax": _softmax,
    "GlobalAveragePool": _reduction,
    "GlobalLpPool": _reduction,
    "GlobalMaxPool": _reduction,
    **{name: _reduction for name in STANDARD_KINDS if name.startswith(("Reduce", "Arg"))},
}
