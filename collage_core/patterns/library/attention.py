"""Scaled dot-product attention, as exporters write it and as an operator.

softmax(scale * Q K^T + mask) V (Vaswani et al., 2017). Exporters differ in where the scale is applied (its square
root to both Q and K; to Q; to the product, as a factor or a quotient), in how K is transposed (alone, merged with
the split into heads, or through three axes), in whether the mask is added or selects, and in how fully masked rows
are guarded. Heads of K and V that are shared by groups of heads of Q are copied beforehand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collage_core.patterns import NodeContext, Pattern, is_absent, is_constant, is_op, wildcard
from collage_core.patterns.library.arithmetic import cast_of_floats, scaled
from collage_core.patterns.library.key_layout import grouped, transposed_key

LEAST_MASKED = -1e4
"""Upper bound of the number that masks a score; half-precision models use it, others use lower numbers."""

_MOST_CASTS = 3
"""Maximum number of consecutive casts after a softmax.

TorchScript writes a no-op cast, one back to the model's type, and one more for a product in a wider type.
"""


def attention_pattern(
    *, q: Pattern | None = None, k: Pattern | None = None, v: Pattern | None = None, mask: bool | None = None
) -> Pattern:
    """Match attention in any of the module's forms, from Q, K and V to the weighted sum of values.

    Q is [..., queries, size] and V [..., keys, value size], with the head axis before both. Captures `q`; `v`;
    one of `k` (laid out as V), `k_heads_last` and `k_transposed` (see `transposed_key`); `mask` if a mask is
    added or passed to the operator, `kept_where` and `masked_where` if a Where applies it; the scales; and
    `whole`, if it is the operator. `attention_of` interprets these captures.

    Args:
        q: Pattern of Q; by default any value, captured as `q`.
        k: Pattern of K before it is transposed or copied; by default any value, captured as described above.
        v: Pattern of V before it is copied; by default any value, captured as `v`.
        mask: Whether there is a mask; None for either. An operator that is causal by its attribute needs none.
    """
    queries = wildcard().named("q") if q is None else q
    values = wildcard().named("v") if v is None else v
    return _operator(queries, k, values, mask) | _written(queries, k, values, mask)


def _operator(q: Pattern, k: Pattern | None, v: Pattern, mask: bool | None) -> Pattern:
    """Match ONNX's operator, without a cache of earlier keys and values."""
    keys = wildcard().named("k") if k is None else k
    given, absent = wildcard().named("mask"), is_absent()
    masks: Pattern = (given | absent) if mask is None else given if mask else absent
    return is_op("Attention")(q, grouped(keys), grouped(v), masks).has_attr(softcap=0.0).at(0).named("whole")


def _written(q: Pattern, k: Pattern | None, v: Pattern, mask: bool | None) -> Pattern:
    scores = _scaled(is_op("MatMul")(_scaled(q, "q"), _scaled(transposed_key(k), "k")), "scores")
    scores = _perhaps_cast(scores)
    if mask is not False:
        masked = _perhaps_cast(_masked(scores))
        scores = masked if mask else masked | scores
    weights = is_op("Softmax")(scores).which(_is_over_last_axis, "over the last axis alone")
    # rows of nothing but minus infinity become rows of zeros
    guarded = is_op("Where")(is_op("IsNaN")(weights), is_constant(_is_zero, "zero"), weights)
    return is_op("MatMul")(_perhaps_cast(guarded | weights, _MOST_CASTS), grouped(v))


def _scaled(value: Pattern, name: str) -> Pattern:
    return scaled(value, name, known=False) | value


def _masked(scores: Pattern) -> Pattern:
    """Match scores that are masked by a choice (Where), by a sum, or by both."""
    least = is_constant(lambda array: bool(np.all(array <= LEAST_MASKED)), f"at most {LEAST_MASKED:g}")
    chosen = is_op("Where")(wildcard().named("kept_where"), scores, least) | is_op("Where")(
        wildcard().named("masked_where"), least, scores
    )
    return is_op("Add")(chosen | scores, wildcard().named("mask")) | chosen


def _perhaps_cast(value: Pattern, most: int = 1) -> Pattern:
    """Match a value behind at most `most` casts; exporters also write casts that change nothing."""
    whole = value
    for _ in range(most):
        value = cast_of_floats(value)
        whole = value | whole
    return whole


def _is_zero(array: np.ndarray[Any, Any]) -> bool:
    return not np.any(array)


def _is_over_last_axis(node: NodeContext) -> bool:
    """Check that a Softmax is over the last axis; before opset 13 the default was 1, later axes included."""
    shape = node.outputs[0].shape
    axis = int(node.attribute("axis", -1 if node.version >= 13 else 1))
    return axis == -1 or (shape is not None and axis == len(shape) - 1)
